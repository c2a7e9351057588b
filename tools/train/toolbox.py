"""Tool schemas with varied names, seeded arguments, questions that need them, and results."""
import json

CITIES = ("Paris Rome London Tokyo Berlin Oslo Madrid Cairo Lima Delhi Vienna Prague Dublin Athens Warsaw Lisbon Helsinki Toronto Chicago Boston Sydney "
          "Moscow Beijing Shanghai Seoul Nairobi Havana Zurich Geneva Milan Naples Munich Hamburg Kyoto Osaka Denver Seattle Dallas Miami Accra").split()
FIRST = ("Tom Anna Carl Maria John Lucy Peter Emma Paul Sara David Julia Mark Laura Ivan Nina Oscar Clara Felix Rosa Hugo Eva Leo Mia Noah Lena Max Ida "
         "Ben Zoe Sam Kate Bob Alice Frank Grace Henry Iris Jack Karen Liam Molly Nick Olga Pablo Quinn Rita Steve Tina Victor Wendy Yuki Chen Wei Ali Fatima "
         "Omar Layla Raj Priya Kofi Amina Lars Ingrid Hans Greta Pierre Chloe Marco Giulia").split()
LANGS = "French German Spanish Italian Chinese Japanese Russian Dutch Polish Arabic Korean Greek".split()
PHRASES = ["good morning", "where is the station", "thank you", "I am hungry", "see you tomorrow", "the book is red", "how are you", "I like tea",
           "open the door", "the train is late", "my name is Anna", "happy birthday"]
TOPICS = ["black holes", "solar panels", "the history of Rome", "bread recipes", "electric cars", "penguins", "the moon landing", "garden tools",
          "cheap flights", "jazz music", "linux kernels", "coffee machines", "chess openings", "rainbows", "old maps", "volcanoes"]
FILES = ["notes.txt", "todo.md", "report.pdf", "main.c", "config.yaml", "data.csv", "README.md", "log.txt", "letter.doc", "script.sh", "/etc/hosts",
         "/etc/passwd", "/var/log/syslog", "src/app.py"]
DIRS = ["/tmp", "/home", "/etc", "src", "docs", "Downloads", "/var/log", "projects"]
ROOMS = ["kitchen", "bedroom", "living room", "bathroom", "garage", "office", "hall"]
SONGS = ["Yesterday", "Imagine", "Hallelujah", "Moon River", "Summertime", "Blue Moon", "Let It Be"]
CUR = ["USD", "EUR", "GBP", "JPY", "CHF", "CNY"]
MESSAGES = ["I am late", "dinner is ready", "call me back", "the meeting is at ten", "happy birthday", "see you soon", "the report is done"]
WORDS = "brave gentle rapid ancient curious silent clever humble noble fierce lazy bright".split()


def name(rng):
    if rng.random() < 0.5:
        return rng.choice(FIRST)
    return (rng.choice("B D F G H J K L M N P R S T V W Z Br Kr St Tr".split()) + rng.choice("a e i o u".split()) + rng.choice("l n r s m d v".split())
            + rng.choice(["a", "o", "in", "an", "us", "ek", "ia", "en", "or", "y"]))


def city(rng):
    return rng.choice(CITIES) if rng.random() < 0.7 else name(rng) + rng.choice(["ville", "town", "burg", "port", "field"])


# kind: (tool names, description, {slot: (parameter names, type, description)}, questions, how to make slots, results, answer)
KINDS = {
    "weather": (["get_weather", "weather", "current_weather", "fetch_weather", "get_current_weather"], "Get the current weather",
                {"c": (["city", "location", "place", "town"], "string", "Name of the city")},
                ["what is the weather in {c}", "how is the weather in {c}", "is it sunny in {c}", "will I need an umbrella in {c}", "weather in {c}", "tell me the weather in {c}",
                 "how warm is it in {c}", "is it raining in {c}", "what's the temperature in {c}", "check the weather for {c}", "do I need a coat in {c} today", "is it cold in {c}"],
                lambda r: {"c": city(r)},
                lambda r, s: (lambda t, k: (r.choice([json.dumps({"temperature": t, "sky": k}), f"{t} degrees, {k}"]), f"In {s['c']} it is {t} degrees and {k}."))(r.randrange(-9, 38), r.choice(["sunny", "cloudy", "rainy", "windy", "clear"]))),
    "run": (["run", "run_command", "shell", "execute", "bash"], "Run a shell command",
            {"x": (["command", "cmd", "line"], "string", "The command line to run")},
            [], None,
            None),
    "search": (["search", "web_search", "search_web", "find_pages"], "Search the web",
               {"q": (["query", "q", "text", "keywords"], "string", "What to search for")},
               ["search the web for {q}", "find information about {q}", "look up {q} online", "google {q}", "search for {q}", "what can you find about {q}", "find pages about {q}",
                "can you search {q}", "do a web search for {q}"],
               lambda r: {"q": r.choice(TOPICS)},
               lambda r, s: (f"3 results: {s['q']} explained; all about {s['q']}; {s['q']} for beginners", f"I found pages about {s['q']}, for example \"{s['q']} explained\".")),
    "add": (["add", "sum", "add_numbers", "plus"], "Add two numbers",
            {"a": (["a", "x", "first"], "integer", "First number"), "b": (["b", "y", "second"], "integer", "Second number")},
            ["what is {a} + {b}", "add {a} and {b}", "how much is {a} plus {b}", "{a} plus {b}", "use the tool to add {a} and {b}", "sum {a} and {b}"],
            lambda r: {"a": r.randrange(1, 1000), "b": r.randrange(1, 1000)},
            lambda r, s: (str(s["a"] + s["b"]), f"{s['a']} + {s['b']} = {s['a'] + s['b']}")),
    "read": (["read_file", "open_file", "cat_file", "get_file"], "Read a file",
             {"f": (["path", "file", "filename"], "string", "Path of the file")},
             ["what is in {f}", "read {f}", "open {f}", "show me {f}", "what does {f} say", "print the file {f}", "can you read {f}", "look into {f}"],
             lambda r: {"f": r.choice(FILES)},
             lambda r, s: (lambda m: (m, f"The file {s['f']} says: {m}"))(r.choice(MESSAGES + PHRASES))),
    "list": (["list_files", "list_directory", "dir"], "List the files in a directory",
             {"d": (["path", "directory", "folder"], "string", "The directory")},
             ["which files are in {d}", "list the files in {d}", "what is in the folder {d}", "show the contents of {d}", "what files does {d} have"],
             lambda r: {"d": r.choice(DIRS)},
             lambda r, s: (lambda fs: ("\n".join(fs), f"The directory {s['d']} contains " + ", ".join(fs[:-1]) + f" and {fs[-1]}."))(r.sample(FILES[:10], r.choice([2, 3])))),
    "timer": (["set_timer", "timer", "start_timer"], "Start a timer",
              {"m": (["minutes", "duration", "min"], "integer", "Minutes to wait")},
              ["set a timer for {m} minutes", "wake me in {m} minutes", "start a timer of {m} minutes", "remind me in {m} minutes", "timer {m} minutes", "count down {m} minutes"],
              lambda r: {"m": r.randrange(2, 91)},
              lambda r, s: (r.choice(["ok", "done", "started"]), f"The timer is set for {s['m']} minutes.")),
    "message": (["send_message", "send", "text_person", "notify"], "Send a message to a person",
                {"n": (["to", "recipient", "person", "name"], "string", "Who gets the message"), "m": (["text", "message", "body"], "string", "The message")},
                ["tell {n}: {m}", "send {n} the message: {m}", "write to {n}: {m}", "text {n} that {m}", "let {n} know: {m}", "message {n}: {m}"],
                lambda r: {"n": name(r), "m": r.choice(MESSAGES)},
                lambda r, s: (r.choice(["sent", "ok", "delivered"]), f"I sent the message to {s['n']}.")),
    "translate": (["translate", "translate_text", "translator"], "Translate a text",
                  {"p": (["text", "sentence", "input"], "string", "The text"), "l": (["language", "target", "to"], "string", "Target language")},
                  ["translate \"{p}\" to {l}", "how do you say \"{p}\" in {l}", "what is \"{p}\" in {l}", "say \"{p}\" in {l}", "translate into {l}: {p}"],
                  lambda r: {"p": r.choice(PHRASES), "l": r.choice(LANGS)}, None),
    "light": (["turn_on_light", "light_on", "switch_light"], "Turn on the light in a room",
              {"r": (["room", "place"], "string", "The room")},
              ["turn on the light in the {r}", "light in the {r}", "make the {r} bright", "switch on the {r} light", "it is dark in the {r}, turn on the light"],
              lambda r: {"r": r.choice(ROOMS)},
              lambda r, s: (r.choice(["on", "ok"]), f"The light in the {s['r']} is on.")),
    "music": (["play_music", "play", "play_song"], "Play a song",
              {"s": (["song", "title", "track"], "string", "Title of the song")},
              ["play {s}", "I want to hear {s}", "play the song {s}", "put on {s}", "start {s}"],
              lambda r: {"s": r.choice(SONGS)},
              lambda r, s: ("playing", f"Now playing {s['s']}.")),
    "convert": (["convert_currency", "exchange", "currency"], "Convert an amount of money",
                {"a": (["amount", "value"], "number", "How much"), "x": (["from", "source"], "string", "Currency"), "y": (["to", "target"], "string", "Wanted currency")},
                ["convert {a} {x} to {y}", "how much is {a} {x} in {y}", "change {a} {x} into {y}", "{a} {x} in {y}"],
                lambda r: dict(zip("axy", [r.randrange(1, 500), *r.sample(CUR, 2)])),
                lambda r, s: (lambda v: (str(v), f"{s['a']} {s['x']} are {v} {s['y']}."))(r.randrange(1, 900))),
    "time": (["get_time", "current_time", "clock"], "Get the current time in a city",
             {"c": (["city", "place", "location"], "string", "The city")},
             ["what time is it in {c}", "tell me the time in {c}", "current time in {c}", "how late is it in {c}", "local time in {c}"],
             lambda r: {"c": city(r)},
             lambda r, s: (lambda t: (t, f"It is {t} in {s['c']}."))(f"{r.randrange(24):02}:{r.randrange(60):02}")),
    "define": (["lookup_word", "dictionary", "define_word"], "Look up a word in the dictionary",
               {"w": (["word", "term"], "string", "The word")},
               ["look up the word {w}", "what does {w} mean, use the dictionary", "find {w} in the dictionary", "define {w} with the tool"],
               lambda r: {"w": r.choice(WORDS)}, None),
    "remind": (["create_reminder", "add_reminder", "remind"], "Create a reminder",
               {"t": (["title", "text", "what"], "string", "What to remember"), "h": (["time", "at", "when"], "string", "Time of day")},
               ["remind me to {t} at {h}", "create a reminder to {t} at {h}", "at {h} I must {t}, remind me", "don't let me forget to {t} at {h}"],
               lambda r: {"t": r.choice(["call mum", "buy milk", "pay the rent", "water the plants", "feed the cat", "send the report"]), "h": f"{r.randrange(7, 23)}:{r.choice(['00', '15', '30', '45'])}"},
               lambda r, s: ("saved", f"I will remind you to {s['t']} at {s['h']}.")),
}


class Tool:
    """one tool of a kind with names drawn for it"""

    def __init__(self, rng, kind):
        self.kind = kind
        names, desc, slots, *_ = KINDS[kind]
        self.name = rng.choice(names)
        self.param = {s: rng.choice(ns) for s, (ns, _, _) in slots.items()}
        props = {self.param[s]: ({"type": ty, "description": d} if rng.random() < 0.7 else {"type": ty}) for s, (_, ty, d) in slots.items()}
        self.schema = {"name": self.name, "description": desc + (rng.choice([".", ""])),
                       "parameters": {"type": "object", "properties": props, "required": list(props)}}

    def call(self, slots):
        return self.name, {self.param[s]: v for s, v in slots.items()}
