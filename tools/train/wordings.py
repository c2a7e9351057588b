"""Reads the hand-written wordings and fills their templates."""
import os, random, re

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "wordings")


def lines(name):
    return [l.rstrip("\n") for l in open(os.path.join(HERE, name), encoding="utf-8")]


def commands():
    """[{"name", "does", "tasks": [(task, command line)]}]"""
    out = []
    for l in lines("commands.txt"):
        if l.startswith("#") or not l.strip():
            continue
        if l.startswith("  "):
            task, _, cmd = l.strip().partition(" = ")
            out[-1]["tasks"].append((task, cmd))
        else:
            name, _, does = l.partition(": ")
            out.append({"name": name, "does": does, "tasks": []})
    return out


def sections(name):
    out, key = {}, None
    for l in lines(name):
        if l.startswith("#"):
            continue
        if re.fullmatch(r"\[\w+\]", l):
            key = l[1:-1]
            out[key] = []
        elif key and (l or key == "opening"):
            out[key].append(l)
    return out


def pairs(name):
    return [tuple(l.split(": ", 1)) for l in lines(name) if ": " in l]


def talk():
    """[([questions], answer)]"""
    out, qs = [], []
    for l in lines("talk.txt"):
        if l.startswith("> "):
            out.append((qs, l[2:]))
            qs = []
        elif l and not l.startswith("# "):
            qs = [q.strip() for q in l.split(" / ")]
    return out


def choose(rng, s):
    """one of each (a|b|); nested groups allowed"""
    while True:
        m = re.search(r"\(([^()]*\|[^()]*)\)", s)
        if not m:
            return re.sub(r"  +", " ", s).strip() if s[:1] != " " else s.rstrip()
        s = s[:m.start()] + rng.choice(m.group(1).split("|")) + s[m.end():]


VERBS_S = {"go": "goes", "do": "does"}


def gerund(task):
    v, _, rest = task.partition(" ")
    special = {"see": "seeing", "be": "being", "tie": "tying", "get": "getting", "cut": "cutting", "put": "putting", "run": "running", "set": "setting",
               "stop": "stopping", "split": "splitting", "zip": "zipping", "scan": "scanning", "wrap": "wrapping", "dump": "dumping", "shut": "shutting",
               "log": "logging", "format": "formatting", "debug": "debugging", "kill": "killing", "view": "viewing", "open": "opening", "list": "listing"}
    if v in special:
        g = special[v]
    elif v.endswith("e") and not v.endswith("ee"):
        g = v[:-1] + "ing"
    else:
        g = v + "ing"
    return (g + " " + rest).strip()


SYNONYMS = [["folder", "directory"], ["delete", "remove", "erase"], ["show", "display", "print", "see", "view"], ["computer", "machine", "system"],
            ["program", "application"], ["picture", "image"], ["remote server", "remote machine", "server"], ["make", "create"], ["unpack", "extract"],
            ["stop", "end", "terminate"], ["contents", "content"], ["search for", "look for"], ["find out", "check", "know"], ["big", "large"]]
INDEX = {w: [x for x in g if x != w] for g in SYNONYMS for w in g}


def vary(rng, task, p=0.3):
    """swaps some words for others of the same meaning"""
    out = []
    for w in task.split(" "):
        out.append(rng.choice(INDEX[w]) if w in INDEX and rng.random() < p else w)
    t = " ".join(out)
    if rng.random() < 0.15:
        t = re.sub(r"\b(a|the) (file|folder|directory|program|disk|package|computer|script)\b", r"my \2", t, count=1)
    if rng.random() < 0.1:
        t += rng.choice([" on my computer", " on my disk", " in this folder", " here", " in my home directory", " on the server", " on debian", " on my laptop", " in a script", " on this machine"])
    if rng.random() < 0.06:
        t = re.sub(r"\b(a|the) ", "", t, count=1)
    return t


def typo(rng, s, keep):
    """one slip of the keyboard in a word that is not in `keep`"""
    words = s.split(" ")
    at = [i for i, w in enumerate(words) if len(w) > 3 and w.isalpha() and w not in keep]
    if not at:
        return s
    i = rng.choice(at)
    w, k = words[i], rng.randrange(1, len(words[i]) - 1)
    kind = rng.random()
    words[i] = w[:k] + w[k + 1:] if kind < 0.4 else w[:k] + w[k + 1] + w[k] + w[k + 2:] if kind < 0.75 else w[:k] + w[k] + w[k:]
    return " ".join(words)


FILLERS = "just really maybe actually again now quickly simply kindly please basically exactly then so also still first even perhaps probably usually today".split()
SMALL = set("a an the is do does to for of i me you can it in on what".split())


class Asker:
    """Puts a wording into the shapes that people type."""

    def __init__(self, rng, templates):
        self.rng, self.t = rng, templates

    def ask(self, section, keep=(), plain=False, **slots):
        rng = self.rng
        s = choose(rng, rng.choice(self.t[section]))
        return self.dress(self.fill(s, slots), keep, plain)

    def carrier(self, core):
        """`core` inside the beginning of one wording and the end of another: only `core` carries meaning"""
        rng = self.rng
        every = [t for k in ("define", "which", "example", "term", "explain") for t in self.t[k]]
        cut = lambda s: re.split(r"\{\w+\}", choose(rng, s))
        return " ".join(x for x in (cut(rng.choice(every))[0].strip(), core, cut(rng.choice(every))[-1].strip() if rng.random() < 0.6 else "") if x)

    @staticmethod
    def fill(s, slots):
        for k, v in slots.items():
            s = s.replace("{" + k + "}", v)
        return s

    def dress(self, s, keep=(), plain=False):
        rng = self.rng
        if plain:
            return s
        r = rng.random()
        if r < 0.1:  # one filler word somewhere
            words = s.split(" ")
            words.insert(rng.randrange(len(words) + 1), rng.choice(FILLERS))
            s = " ".join(words)
        elif r < 0.18:  # one small word lost
            words = s.split(" ")
            small = [i for i, x in enumerate(words) if x.lower() in SMALL]
            if small and len(words) > 3:
                del words[rng.choice(small)]
                s = " ".join(words)
        asks = re.match(r"(?i)(what|which|how|who|when|why|is|are|can|could|do|does|should|where|whats|will|would|ever|any)\b", s)
        if rng.random() < 0.28:
            o = rng.choice(self.t["opening"])
            s = o + s if not o or o.endswith(" ") else o + " " + s
        closing = rng.choice(self.t["closing"]) if rng.random() < 0.18 else ""
        if closing and not s.endswith(("?", ".", "=")):
            s += closing
        r = rng.random()
        if not s.endswith(("?", ".", "!", "=")):
            if asks:
                s += "?" if r < 0.75 else ""
            else:
                s += "." if r < 0.3 else "?" if r < 0.4 else ""
        if rng.random() < 0.08:
            s = typo(rng, s, keep)
        r = rng.random()
        if r < 0.45 and s[:1].islower() and not any(s.startswith(k) for k in keep):
            s = s[0].upper() + s[1:]
        elif r > 0.85:
            s = " ".join(w if any(k in w for k in keep) else w.lower() for w in s.split(" "))
        return s


def syllables(rng, n):
    return "".join(rng.choice("b c d f g h j k l m n p qu r s t v w z bl br dr fr gl kr pl st tr".split()) + rng.choice("a e i o u oo ee ai".split())
                   for _ in range(n)) + rng.choice(["", "", "n", "r", "x", "t", "k", "m", "l"])


def unknown_command(rng, known, some):
    """a name that looks like a command and is none"""
    while True:
        r = rng.random()
        if r < 0.4:
            n = syllables(rng, rng.choice([1, 2, 2, 3]))
        elif r < 0.6:
            n = syllables(rng, rng.choice([1, 2])) + rng.choice(["ctl", "tool", "d", "fs", "ify", "cat", "sh", "gen", "-util", "-cli", "conf", "ster"])
        elif r < 0.75:
            n = "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.choice([3, 4, 5])))
        else:
            n = rng.choice(some) + rng.choice(["x", "zz", "ify", "o", "ql", "ster", "ly", "able", "ex", "ium", "99"]) if rng.random() < 0.6 else \
                rng.choice(["un", "re", "super", "my", "qq", "z"]) + rng.choice(some)
        if n not in known and len(n) > 2:
            return n
