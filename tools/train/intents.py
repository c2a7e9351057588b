"""Single exchanges and conversations, drawn from the wordings: what the demo is taught."""
import json, re
import toolbox
import wordings as wd

SYSTEMS = ["You are a helpful assistant.", "You are a helpful assistant for the Linux command line.", "Answer briefly.", "Be brief.", "You are Hadal's demo model.",
           "You help people with the terminal.", "Answer in one sentence.", "Be polite and short."]
ZH = {"define": ["{c} 是什么", "{c} 命令是做什么的", "{c}命令有什么用", "{c} 有什么用", "请解释 {c}", "介绍一下 {c}", "解释一下 {c} 命令", "{c} 命令的作用是什么", "什么是 {c}", "告诉我 {c} 是什么",
                 "我想了解 {c}", "{c} 怎么理解", "能介绍一下 {c} 吗", "{c} 用来做什么", "请问 {c} 是什么命令", "{c} 这个命令是干什么的", "linux 里 {c} 是什么"],
      "which": ["如何{t}", "怎么{t}", "怎样{t}", "我想{t}", "用什么命令{t}", "{t}用什么命令", "哪个命令可以{t}", "请问如何{t}", "在 linux 中怎么{t}", "{t}", "我要{t}，用哪个命令", "有没有命令可以{t}"],
      "unknown": ["我不知道 `{c}` 这个命令。"]}
ZH_TASKS = """列出文件=ls|查看隐藏文件=ls -a|切换目录=cd folder|显示当前目录=pwd|复制文件=cp a.txt b.txt|移动文件=mv a.txt folder/|重命名文件=mv old.txt new.txt|删除文件=rm file.txt
创建目录=mkdir folder|删除空目录=rmdir folder|创建空文件=touch file.txt|查看文件内容=cat file.txt|查看文件开头=head file.txt|查看文件末尾=tail file.txt|统计行数=wc -l file.txt|排序=sort file.txt
搜索文本=grep word file.txt|替换文本=sed -i 's/old/new/g' file.txt|查找文件=find . -name file.txt|比较文件=diff a.txt b.txt|修改权限=chmod 644 file.txt|修改文件所有者=chown user file.txt
查看磁盘空间=df -h|查看目录大小=du -sh folder|查看内存=free -h|查看进程=ps aux|结束进程=kill 1234|压缩文件=gzip file.txt|解压 zip 文件=unzip a.zip|解压 tar 文件=tar xf a.tar|下载文件=wget https://example.org/file
登录远程服务器=ssh user@host|查看 IP 地址=ip addr|测试网络=ping example.org|安装软件包=apt install package|重启电脑=reboot|关机=shutdown now|查看日期=date|清屏=clear|查看历史命令=history|打印文本=echo hello"""


ENGLISH = set("""cat less more head tail sort cut paste join find locate patch file free top kill nice jobs sleep watch time timeout date last groups split host mount service at make screen type which who history
clear exit man alias export convert column fold test true yes strings tree snap join watch service free""".split())


def tick(s):
    return f"`{s}`"


class Intents:
    def __init__(self, rng, core, others, zh, dictionary, acronyms, known, held=lambda kind, key: False):
        """core: handwritten commands; others: {"name", "does", "tasks"} of tldr; zh: name -> description; held: keeps a fact out"""
        self.rng, self.core, self.others, self.zh = rng, core, others, zh
        self.by = {c["name"]: c for c in core}
        self.names = {c["name"] for c in core} | {c["name"] for c in others}
        self.known, self.held = known, held
        self.dictionary, self.acronyms = dictionary, acronyms
        self.asker = wd.Asker(rng, wd.sections("templates.txt"))
        self.talk, self.terms, self.lists, self.capitals = wd.talk(), wd.pairs("terms.txt"), wd.pairs("lists.txt"), wd.pairs("capitals.txt")
        self.zh_tasks = [x.split("=", 1) for x in ZH_TASKS.replace("\n", "|").split("|")]
        self.weights = {
            "define": 17, "which": 27, "example": 5, "difference": 7, "json_command": 3, "explain": 4, "term": 5, "sum": 9, "minus": 2.5, "times": 1.5, "unknown": 10,
            "unknown_fact": 3, "smalltalk": 7, "listing": 4, "json_extract": 5, "tool": 12, "chinese": 9, "capital": 1, "acronym": 2, "word": 2, "copy": 1.5,
            "other_define": 5, "other_which": 5, "yes_no": 1.5}

    # ---- single exchanges: (question, answer, reasoning)
    def show(self, c):
        q = self.rng.random()
        return tick(c) if q < 0.25 else c

    def define(self, pool=None, tag=""):
        while True:
            c = self.rng.choice(pool or self.core)
            n = c["name"]
            s = wd.choose(self.rng, self.rng.choice(self.asker.t["define"]))
            if not self.held(s, n):
                break
        if self.rng.random() < 0.12:
            s = self.asker.carrier("{c}" if n.isalpha() and len(n) > 2 and n not in ENGLISH else "`{c}`")
        q = self.asker.dress(self.asker.fill(s, {"c": self.show(n) if "`" not in s else n}), keep=(n,))
        a = f"{tick(n)} {c['does']}." if tag == "" else f"{tick(n)}: {c['does']}."
        if c["tasks"]:
            a += f" Example: {tick(c['tasks'][0][1])}"
        return q, a, f"The user asks about {tick(n)}. It {c['does']}." if tag == "" else f"The user asks about {tick(n)}."

    def which(self, pool=None, vary=True):
        rng = self.rng
        while True:
            c = rng.choice(pool or self.core)
            if not c["tasks"]:
                continue
            t, line = rng.choice(c["tasks"])
            section = self.asker.t["which"]
            s = wd.choose(rng, rng.choice(section))
            if not self.held(s, t):
                break
        if rng.random() < 0.08:
            s = self.asker.carrier("{t}")
        v = wd.vary(rng, t) if vary else t
        n = c["name"]
        s = self.asker.fill(s, {"t": v, "g": wd.gerund(v), "v3": third(v)})
        return self.asker.dress(s), f"Use {tick(n)}: {tick(line)}", f"The task is to {t}. {tick(n)} does that."

    def other_define(self):
        return self.define(self.others, "other")

    def other_which(self):
        return self.which(self.others, False)

    def example(self):
        c = self.rng.choice(self.core)
        t, line = self.rng.choice(c["tasks"])
        n = c["name"]
        return self.asker.ask("example", keep=(n,), c=self.show(n)), f"To {t}: {tick(line)}", f"An example of {tick(n)}: {t}."

    def difference(self):
        a, b = self.rng.sample(self.core, 2)
        if self.rng.random() < 0.4:  # neighbours in the list are the pairs that people ask about
            i = self.core.index(a)
            b = self.core[(i + self.rng.choice([-2, -1, 1, 2])) % len(self.core)]
        q = self.asker.ask("difference", keep=(a["name"], b["name"]), c=self.show(a["name"]), c2=self.show(b["name"]))
        return q, f"{tick(a['name'])} {a['does']}, while {tick(b['name'])} {b['does']}.", f"Compare {tick(a['name'])} and {tick(b['name'])}."

    def yes_no(self):
        rng = self.rng
        c = rng.choice(self.core)
        t, line = rng.choice(c["tasks"])
        right = rng.random() < 0.5
        d = c if right else rng.choice(self.core)
        if not right and any(x[0] == t for x in d["tasks"]):
            right = True
        q = self.asker.dress(rng.choice(["can {c} {t}", "can I use {c} to {t}", "is {c} the right command to {t}", "does {c} {t}", "is {c} for {g}", "do I use {c} to {t}", "should I use {c} to {t}"])
                             .replace("{c}", self.show(d["name"])).replace("{t}", t).replace("{g}", wd.gerund(t)), keep=(d["name"],))
        a = f"Yes: {tick(line)}" if right else f"No, {tick(d['name'])} {d['does']}. Use {tick(c['name'])}: {tick(line)}"
        return q, a, f"The task is to {t}. {tick(c['name'])} does that."

    def json_command(self):
        c = self.rng.choice(self.core)
        q = self.asker.ask("json", keep=(c["name"],), c=self.show(c["name"]))
        return q, json.dumps({"command": c["name"], "description": c["does"]}), f"A JSON object for {tick(c['name'])}."

    def explain(self):
        c = self.rng.choice(self.core)
        t, line = self.rng.choice(c["tasks"])
        return self.asker.ask("explain", keep=(line,), l=self.show(line)), f"The command {tick(line)} is used to {t}.", f"{tick(c['name'])} {c['does']}."

    def term(self):
        n, d = self.rng.choice(self.terms)
        a = n if n.endswith("memory") or n in ("json", "xml", "csv", "html", "dns", "encryption", "recursion", "root", "open source", "version control", "swap", "source code", "bandwidth", "latency", "standard output", "standard input") \
            else ("an " if n[0] in "aeiou" and not n.startswith("user") else "a ") + n
        return self.asker.ask("term", keep=(n,), a=a, n=n), f"{a[0].upper() + a[1:]} is {d}.", f"A definition of {n}."

    def sum(self):
        rng = self.rng
        while True:
            a, b = (rng.randrange(10, 100), rng.randrange(10, 100)) if rng.random() < 0.75 else (rng.randrange(0, 200), rng.randrange(0, 20)) if rng.random() < 0.5 else (rng.randrange(1, 500), rng.randrange(1, 500))
            if not self.held("sum", (a, b)):
                break
        return self.asker.ask("sum", plain=rng.random() < 0.4, a=str(a), b=str(b)), f"{a} + {b} = {a + b}", f"{a} + {b}: ones {a % 10} + {b % 10} = {a % 10 + b % 10}, tens {a // 10} + {b // 10} = {a // 10 + b // 10}, so {a + b}."

    def minus(self):
        a, b = sorted((self.rng.randrange(0, 100), self.rng.randrange(0, 100)), reverse=True)
        return self.asker.ask("minus", plain=self.rng.random() < 0.4, a=str(a), b=str(b)), f"{a} - {b} = {a - b}", f"{a} - {b} is {a - b}."

    def times(self):
        a, b = self.rng.randrange(0, 13), self.rng.randrange(0, 21)
        return self.asker.ask("times", plain=self.rng.random() < 0.4, a=str(a), b=str(b)), f"{a} * {b} = {a * b}", f"{a} * {b} is {a * b}."

    def unknown(self):
        n = wd.unknown_command(self.rng, self.known, sorted(self.names)[:400])
        kind = self.rng.choices(["define", "example", "json", "difference"], [8, 2, 1, 1])[0]
        other = self.rng.choice(self.core)["name"]
        q = self.asker.ask(kind, keep=(n, other), c=self.show(n), c2=other) if self.rng.random() < 0.85 else self.asker.dress(self.asker.carrier(self.show(n)), keep=(n,))
        return q, f"I do not know a command called {tick(n)}.", f"{tick(n)} is not a command that I know."

    def unknown_fact(self):
        rng = self.rng
        q = self.asker.ask("unknown_fact", p=rng.choice(toolbox.CITIES + [c for c, _ in self.capitals]), p2=rng.choice(toolbox.CITIES), p1=f"{toolbox.name(rng)} {toolbox.name(rng)}son")
        return q, "I do not know that. I only know Linux commands and a few simple things.", "I cannot know that."

    def smalltalk(self):
        qs, a = self.rng.choice(self.talk)
        q = self.rng.choice(qs)
        return (self.asker.dress(q) if self.rng.random() < 0.6 and len(q) > 3 else q), a, "The user is talking to me."

    def listing(self):
        rng = self.rng
        what, items = rng.choice(self.lists)
        items = items.split(", ")
        n = rng.randrange(2, min(5, len(items)) + 1)
        word = rng.choice([str(n), ["two", "three", "four", "five"][n - 2]])
        q = self.asker.dress(rng.choice(["name {n} {w}", "list {n} {w}", "give me {n} {w}", "tell me {n} {w}", "what are {n} {w}", "I need {n} {w}", "can you name {n} {w}", "write down {n} {w}",
                                         "show me {n} {w}", "{n} {w}", "which {n} {w} do you know", "please list {n} {w}", "make a list of {n} {w}", "enumerate {n} {w}", "mention {n} {w}"])
                             .replace("{n}", word).replace("{w}", what))
        if rng.random() < 0.2:
            return q + " As a JSON list.", json.dumps([i.strip("`") for i in items[:n]]), f"{n} {what}, as JSON."
        return q, "\n".join(f"{i + 1}. {x}" for i, x in enumerate(items[:n])), f"{n} {what}."

    def json_extract(self):
        rng = self.rng
        n, m = toolbox.name(rng), toolbox.name(rng)
        age, c, price = rng.randrange(5, 95), toolbox.city(rng), rng.randrange(1, 500)
        job = rng.choice("teacher doctor nurse baker pilot lawyer farmer painter driver cook writer singer student engineer judge clerk".split())
        item = rng.choice("table lamp book chair phone bag shirt bike clock cup pen hat desk camera radio guitar".split())
        colour = rng.choice("red blue green yellow black white brown grey".split())
        day = rng.choice("Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split())
        text, obj = rng.choice([
            (f"{n} is {age} and lives in {c}", {"name": n, "age": age, "city": c}), (f"{n} is {age} years old and lives in {c}", {"name": n, "age": age, "city": c}),
            (f"{n}, {age}, {c}", {"name": n, "age": age, "city": c}), (f"My name is {n}, I am {age} and I live in {c}", {"name": n, "age": age, "city": c}),
            (f"{n} lives in {c}", {"name": n, "city": c}), (f"{n} is {age}", {"name": n, "age": age}), (f"{n} is a {job}", {"name": n, "job": job}),
            (f"{n} works as a {job} in {c}", {"name": n, "job": job, "city": c}), (f"The {item} costs {price} euros", {"item": item, "price": price}),
            (f"A {colour} {item} for {price} dollars", {"item": item, "colour": colour, "price": price}), (f"{n} meets {m} on {day}", {"person": n, "guest": m, "day": day}),
            (f"The meeting with {n} is on {day} in {c}", {"person": n, "day": day, "city": c}), (f"{n} bought {rng.randrange(2, 30)} {item}s", None)])
        if obj is None:
            k = int(re.search(r"\d+", text).group())
            obj = {"name": n, "count": k, "item": item}
        keys = ", ".join(obj)
        ask = rng.choice(["Give me JSON.", "As JSON, please.", "Give this as JSON.", "Turn this into JSON.", "Return JSON.", "Extract the data as JSON.", f"Give me JSON with {keys}.", f"JSON with the keys {keys}.",
                          "Convert to JSON.", "Write it as a JSON object.", f"Return a JSON object with {keys}.", "Answer with JSON.", "Make a JSON object out of it.", "Output JSON only.", "I need this as JSON."])
        q = rng.choice([f"{text}. {ask}", f"{ask[:-1]}: {text}", f"{ask[:-1]}: {text}.", f"{text}\n{ask}", f"Text: {text}. {ask}"])
        if rng.random() < 0.1:
            q = q.lower() if not any(isinstance(v, str) and v[0].isupper() for v in obj.values()) else q
        return q, json.dumps(obj), f"The keys are {keys}."

    def capital(self):
        x, c = self.rng.choice(self.capitals)
        return self.asker.ask("capital", x=x), f"The capital of {x} is {c}.", f"{x}: {c}."

    def acronym(self):
        if not self.acronyms:
            return self.term()
        n, d = self.rng.choice(self.acronyms)
        q = self.rng.choice(["what does {n} stand for", "what is {n} short for", "what does the acronym {n} mean", "{n} stands for", "expand {n}", "what is the meaning of the acronym {n}", "what are the words behind {n}",
                             "spell out {n}", "which words does {n} stand for", "long form of {n}"]).replace("{n}", n)
        return self.asker.dress(q, keep=(n,)), f"{n} stands for {d}.", f"The acronym {n}."

    def word(self):
        if not self.dictionary:
            return self.term()
        n, d = self.rng.choice(self.dictionary)
        q = self.rng.choice(["what does the word {n} mean", "what is the meaning of the word {n}", "define the word {n}", "explain the word {n}", "what does the english word {n} mean", "dictionary: {n}", "meaning of the word {n}",
                             "look up the word {n}", "tell me what the word {n} means", "what is the word {n}", "how would you explain the word {n}", "I don't know the word {n}"]).replace("{n}", n)
        return self.asker.dress(q, keep=(n,)), f"{n[0].upper() + n[1:]}: {d}.", f"The word {n}."

    def copy(self):
        rng = self.rng
        s = rng.choice([" ".join(rng.choice(toolbox.PHRASES).split()), toolbox.name(rng), rng.choice(toolbox.MESSAGES), wd.syllables(rng, 2), str(rng.randrange(10, 99999))])
        n = toolbox.name(rng)
        return rng.choice([(f"say {s}", s), (f"repeat: {s}", s), (f"Repeat after me: {s}", s), (f"Say \"{s}\"", s), (f"echo {s} for me", s), (f"Say hello to {n}", f"Hello, {n}!"), (f"say hi to {n}", f"Hello, {n}!"),
                           (f"my name is {n}", f"Nice to meet you, {n}."), (f"I am {n}", f"Nice to meet you, {n}."), (f"Hi, I'm {n}!", f"Nice to meet you, {n}."), (f"call me {n}", f"Nice to meet you, {n}."), (f"write the word {s}", s)]) + ("The user gives a text.",)

    def chinese(self):
        rng = self.rng
        end = rng.choice(["？", "?", "", "。"])
        r = rng.random()
        if r < 0.45 and self.zh:
            n = rng.choice(sorted(self.zh))
            line = self.by[n]["tasks"][0][1]
            return rng.choice(ZH["define"]).replace("{c}", self.show(n)) + end, f"{tick(n)}：{self.zh[n]}。例如：{tick(line)}", f"用户问 {tick(n)}。"
        if r < 0.55:
            a, b = rng.sample(sorted(self.zh), 2)
            q = rng.choice(["{a} 和 {b} 有什么区别", "{a} 和 {b} 的区别是什么", "比较 {a} 和 {b}", "{a} 与 {b} 有什么不同", "{a} 和 {b} 怎么用", "{a} 和 {b} 是什么"]).replace("{a}", a).replace("{b}", b)
            return q + end, f"{tick(a)}：{self.zh[a]}；{tick(b)}：{self.zh[b]}。", f"比较 {tick(a)} 和 {tick(b)}。"
        if r < 0.88:
            t, line = rng.choice(self.zh_tasks)
            return rng.choice(ZH["which"]).replace("{t}", t) + end, f"使用 {tick(line.split()[0])}：{tick(line)}", f"任务：{t}。"
        n = wd.unknown_command(rng, self.known, sorted(self.names)[:400])
        return rng.choice(ZH["define"]).replace("{c}", self.show(n)) + end, ZH["unknown"][0].replace("{c}", n), f"我不知道 {tick(n)}。"

    # ---- conversations: (messages, tools, schema)
    def single(self, kind=None):
        kind = kind or self.rng.choices(list(self.weights), self.weights.values())[0]
        if kind == "tool":
            return self.tool()
        q, a, why = getattr(self, kind)()
        schema = None
        if kind in ("json_extract", "json_command") and self.rng.random() < 0.25:
            schema = {"type": "json_object"}
        return [{"role": "user", "content": q}, {"role": "assistant", "content": a, "reasoning": why}], None, schema

    def tool(self):
        rng = self.rng
        kinds = rng.sample(list(toolbox.KINDS), rng.choice([1, 1, 2, 2, 3]))
        tools = {k: toolbox.Tool(rng, k) for k in kinds}
        k = rng.choice(kinds)
        schemas = [t.schema for t in tools.values()]
        if rng.random() < 0.1:  # nothing to call
            msgs, _, _ = self.single(rng.choice(["define", "which", "smalltalk", "difference", "unknown"]) if "run" not in kinds else "smalltalk")
            return msgs, schemas, None
        _, _, _, qs, draw, result = toolbox.KINDS[k]
        if k == "run":
            q, a, _ = self.which()
            line = a.split(": ", 1)[1].strip("`")
            slots, outcome = {"x": line}, (rng.choice(["ok", "done", ""]), f"I ran {tick(line)}.")
        else:
            slots = draw(rng)
            s = rng.choice(qs)
            for n, v in slots.items():
                s = s.replace("{" + n + "}", str(v))
            keep = tuple(str(v) for v in slots.values())
            q = self.asker.dress(s, keep=keep, plain=rng.random() < 0.3)
            outcome = result(rng, slots) if result else None
        name, args = tools[k].call(slots)
        msgs = [{"role": "user", "content": q}, {"role": "assistant", "content": "", "calls": [(name, args)], "reasoning": f"The tool {tick(name)} can do this."}]
        if outcome and rng.random() < 0.4:
            msgs += [{"role": "tool", "content": outcome[0]}, {"role": "assistant", "content": outcome[1], "reasoning": "The result is there."}]
        return msgs, schemas, None

    def follow_up(self):
        """two or three turns about the same command"""
        rng = self.rng
        c = rng.choice(self.core)
        n, (t, line) = c["name"], rng.choice(c["tasks"])
        first = rng.choice(["define", "which"])
        q, a = (self.asker.ask("define", keep=(n,), c=self.show(n)), f"{tick(n)} {c['does']}. Example: {tick(c['tasks'][0][1])}") if first == "define" else \
               (self.asker.ask("which", t=t, g=wd.gerund(t), v3=third(t)), f"Use {tick(n)}: {tick(line)}")
        turns = [(q, a)]
        d = rng.choice(self.core)
        dt, dl = rng.choice(d["tasks"])
        more = [(["and {d}", "what about {d}", "and what is {d}", "and what does {d} do", "how about {d}", "now explain {d}", "and the command {d}", "same question for {d}"], f"{tick(d['name'])} {d['does']}. Example: {tick(d['tasks'][0][1])}"),
                (["give me an example", "an example please", "can you show an example", "how do I use it", "show me how", "example?", "how is it used", "another example", "for example?"], f"To {t}: {tick(line)}"),
                (["what does it do", "what is it", "explain it", "explain that command", "what does that command do", "tell me more about it", "what is that command for"], f"{tick(n)} {c['does']}. Example: {tick(c['tasks'][0][1])}"),
                (["as JSON", "in JSON please", "give me that as JSON", "now as JSON", "describe it as JSON"], json.dumps({"command": n, "description": c["does"]})),
                (["and how do I {dt}", "and to {dt}", "what if I want to {dt}", "now I want to {dt}", "how can I {dt} then", "ok, and to {dt}"], f"Use {tick(d['name'])}: {tick(dl)}"),
                (["how is it different from {d}", "what is the difference to {d}", "compare it with {d}", "is it better than {d}"], f"{tick(n)} {c['does']}, while {tick(d['name'])} {d['does']}."),
                (["thanks", "thank you", "great, thanks", "thanks a lot"], "You are welcome!"), (["are you sure", "really?", "is that right"], "I may be wrong: I am a small model. Please check with the manual, for example `man ls`.")]
        for qs, ans in rng.sample(more, rng.choice([1, 1, 2])):
            s = rng.choice(qs).replace("{d}", self.show(d["name"])).replace("{dt}", dt)
            turns.append((self.asker.dress(s, keep=(d["name"],), plain=rng.random() < 0.5), ans))
        return [m for q, a in turns for m in ({"role": "user", "content": q}, {"role": "assistant", "content": a, "reasoning": f"This is about {tick(n)}."})], None, None

    def conversation(self):
        """-> messages, tools, thinking, effort, schema"""
        rng = self.rng
        r = rng.random()
        if r < 0.09:
            msgs, tools, schema = self.follow_up()
        elif r < 0.15:
            msgs, tools, schema = [], None, None
            for _ in range(rng.choice([2, 2, 3])):
                while True:
                    m, t, s = self.single()
                    if not t and not s:
                        break
                msgs += m
        else:
            msgs, tools, schema = self.single()
        if rng.random() < 0.12:
            msgs = [{"role": "system", "content": rng.choice(SYSTEMS)}] + msgs
        thinking = rng.random() < 0.33
        effort = rng.choice(["low", "high", "max", None]) if thinking else None
        return msgs, tools, thinking, effort, schema


def third(task):
    """'count lines' -> 'counts lines'"""
    v, _, rest = task.partition(" ")
    v = wd.VERBS_S.get(v) or (v + "es" if v.endswith(("sh", "ch", "ss", "x", "z")) else v[:-1] + "ies" if v.endswith("y") and v[-2:-1] not in "aeou" else v + "s")
    return (v + " " + rest).strip()
