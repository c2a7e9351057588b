"""Facts and prose from the packages: tldr pages, WordNet and V.E.R.A. of Debian, installed manual pages."""
import glob, hashlib, json, lzma, os, re, subprocess

ACRONYMS = """API CPU GPU RAM ROM DNS URL HTTP HTTPS HTML CSS XML JSON SQL FTP SSH TCP UDP IP LAN WAN VPN USB BIOS PDF ASCII GUI CLI IDE OS PC PID UID GID NFS RAID SSD HDD LCD LED
MAC NAT DHCP SMTP IMAP POP SSL TLS PGP RSA AES SHA ISO JPEG PNG GIF MPEG GNU GPL BSD GCC GDB KDE FAQ RFC ISP IRC VGA PCI SATA SCSI UEFI EOF FIFO LIFO POSIX UTF OCR
ARP BGP CGI CVS DES DSL FPU GPS IEEE IPC ISDN JVM LDAP LUN LVM MIME MMU NTP OEM OOP PHP PPP QOS RISC RPC SDK SIMD SNMP SOAP SVG TFTP TTL UML UPS URI UUID VLAN VNC VOIP WEP WPA WWW XSS YAML""".split()


def stable(text, n):
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little") % n


def plain(cmd):
    """tldr command line -> one without its marks: first of alternatives, short options, example names"""
    cmd = re.sub(r"\{\{\[(-[^|\]]*)\|[^\]]*\]\}\}", r"\1", cmd)
    cmd = re.sub(r"\{\{([^{}|]*)\|[^{}]*\}\}", r"\1", cmd)
    cmd = re.sub(r"\{\{(.*?)\}\}", r"\1", cmd)
    return cmd.replace("path/to/", "").replace("路径/到/", "")


def tldr(path):
    return [json.loads(l) for l in lzma.open(path, "rt", encoding="utf-8")]


def others(pages, core, count):
    """short facts of further commands: {"name", "does", "tasks"}"""
    out = {}
    for p in pages:
        n = p["name"]
        if p["lang"] != "en" or n in core or n in out or not re.fullmatch(r"[a-z][a-z0-9+-]*", n) or n.count("-") > 1 or len(n) > 14:
            continue
        about = p["about"][0].rstrip(".")
        if len(about) > 70 or "`" in about or not p["examples"]:
            continue
        tasks = []
        for what, cmd in p["examples"][:6]:
            cmd = plain(cmd)
            what = re.sub(r"\[(\w)\]", r"\1", what).rstrip(".:")
            if len(cmd) <= 45 and len(what) <= 60 and "\n" not in cmd and "`" not in what and "(" not in what and cmd.startswith(n):
                tasks.append((what[0].lower() + what[1:], cmd))
        if tasks:
            out[n] = {"name": n, "does": about[0].lower() + about[1:] if not about[:2].isupper() else about, "tasks": tasks[:2]}
    listed = [l for l in open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "wordings", "other_commands.txt")).read().split() if l in out]
    return [out[n] for n in listed[:count]]


def chinese(pages, core):
    out = {}
    for p in pages:
        if p["lang"] == "zh" and p["name"] in core and "`" not in p["about"][0] and len(p["about"][0]) <= 30:
            out.setdefault(p["name"], p["about"][0].rstrip("。."))
    return out


def names(pages):
    return {p["name"] for p in pages} | {os.path.basename(f) for d in ("/usr/bin", "/usr/sbin") for f in glob.glob(d + "/*")}


def wordnet(root, taken, count):
    """the commonest words and their first gloss; root: unpacked wordnet-base"""
    base = os.path.join(root, "usr/share/wordnet")
    if not os.path.isdir(base):
        return []
    seen = {}
    for l in open(os.path.join(base, "cntlist.rev")):
        key, sense, n = l.split()
        lemma, _, rest = key.partition("%")
        if sense == "1" and rest[0] in "123" and re.fullmatch(r"[a-z]{4,9}", lemma):
            seen.setdefault(lemma, (int(n), rest[0]))
            seen[lemma] = max(seen[lemma], (int(n), rest[0]))
    first = {}
    for pos, f in (("1", "noun"), ("2", "verb"), ("3", "adj")):
        offset = {}
        for l in open(os.path.join(base, "data." + f)):
            if not l.startswith(" "):
                offset[l[:8]] = l.split("| ", 1)[1].split(";")[0].strip()
        for l in open(os.path.join(base, "index." + f)):
            if not l.startswith(" "):
                w = l.split()
                first[w[0], pos] = offset[w[6 + int(w[3]) - 1 + 1] if False else [x for x in w if re.fullmatch(r"\d{8}", x)][0]]
    out = []
    for w in sorted(seen, key=lambda w: -seen[w][0]):
        g = first.get((w, seen[w][1]), "")
        g = re.sub(r"\s*\([^)]*\)\s*", " ", g).strip()
        if w not in taken and 10 < len(g) < 60 and w not in g and '"' not in g:
            out.append((w, g))
    return out[:count]


def vera(root):
    path = os.path.join(root, "usr/share/dictd/vera.dict.dz")
    if not os.path.exists(path):
        return []
    text = subprocess.run(["zcat", path], capture_output=True).stdout.decode("utf-8", "replace")
    out = {}
    for m in re.finditer(r"^(\S+)\n       (.+)$", text, re.M):
        if m.group(1) in ACRONYMS:
            d = re.sub(r"\s*[\[(].*?[\])]|,? \".*", "", m.group(2)).strip()
            if 5 < len(d) < 50:
                out.setdefault(m.group(1), d)
    return sorted(out.items())


def manuals(wanted, limit):
    """plain text of installed manual pages, paragraph by paragraph"""
    out = []
    for n in wanted:
        r = subprocess.run(["man", "-P", "cat", n], capture_output=True, env=os.environ | {"MANWIDTH": "200", "LC_ALL": "C.UTF-8", "MAN_KEEP_FORMATTING": ""})
        text = re.sub(r".\x08", "", r.stdout.decode("utf-8", "replace"))
        text = re.sub(r"\x1b\[[0-9;]*m", "", text)
        paras = [re.sub(r"\s+", " ", p).strip() for p in text.split("\n\n")]
        paras = [p for p in paras if 60 < len(p) < 900 and "Copyright" not in p]
        if paras:
            out.append((n, "\n".join(paras)[:limit]))
    return out
