#!/usr/bin/env python3
"""What Hadal cannot work with: bad_input_test.py HADAL. Each wrong file or value meets every command that reads it; each must
end with exit code 1 and one paragraph on stderr that names the file, the field and the mend."""
import json
import os
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

HADAL = sys.argv[1]
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEMO = os.path.join(ROOT, "models", "demo")
SHARD = "model-00001-of-00002.safetensors"
HI = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def edit_header(change):
    """A shard whose header was changed; the same length, so that no offset moves."""
    def go(data):
        n = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + n])
        change({name: entry for name, entry in header.items() if name != "__metadata__"})
        text = json.dumps(header, separators=(",", ":")).encode()
        return struct.pack("<Q", max(n, len(text))) + text.ljust(n) + data[8 + n:]
    return go


def edit_config(change):
    def go(data):
        config = json.loads(data)
        change(config, config["text_config"])
        return json.dumps(config).encode()
    return go


def lie(header):
    header["layers.0.attn.wq_a.weight"]["data_offsets"][1] += 10**9


def mistype(header):
    header["embed.weight"]["dtype"] = "F16"


def nan_byte(data):
    n = struct.unpack("<Q", data[:8])[0]
    at = 8 + n + json.loads(data[8:8 + n])["layers.0.attn.wq_a.weight"]["data_offsets"][0]
    return data[:at] + b"\x7f" + data[at + 1:]


def contradict(_, text):
    text["num_experts_per_tok"] = 1000
    text["kv_source_layer_ids"] = [99]


def drop_fields(_, text):
    del text["hidden_size"], text["n_routed_experts"]


WEIGHTS = ("run", "score", "serve", "generate", "inspect", "bench step", "selfcheck")
CONFIG = (*WEIGHTS, "inspect --layout-only", "make-model")
TOKENIZER = ("run", "score", "serve", "generate", "bench step", "selfcheck", "encode", "decode")
# name: (file, how it is changed or None to remove it, commands that read it, words of the error)
FOLDERS = {
    "truncated shard": (SHARD, lambda data: data[:-1000], WEIGHTS, (SHARD, "layers.8.ffn.experts.6.w1.weight", "download it again")),
    "shard of five bytes": (SHARD, lambda data: data[:5], WEIGHTS, (SHARD, "5 bytes", "download it again")),
    "missing shard": (SHARD, None, WEIGHTS, (SHARD, "complete")),
    "header that lies": (SHARD, edit_header(lie), WEIGHTS, (SHARD, "layers.0.attn.wq_a.weight", "download it again")),
    "header that is no JSON": (SHARD, lambda data: data[:8] + b"x" + data[9:], WEIGHTS, (SHARD, "header")),
    "wrong dtype": (SHARD, edit_header(mistype), WEIGHTS, ("embed.weight", "F16", "BF16", "get the checkpoint again")),
    "NaN byte": (SHARD, nan_byte, WEIGHTS, ("layers.0.attn.wq_a.weight", "1 of", "NaN", "get the checkpoint again")),
    "no index": ("model.safetensors.index.json", None, WEIGHTS, ("model.safetensors.index.json", "missing")),
    "index that is no JSON": ("model.safetensors.index.json", lambda data: data[:99], WEIGHTS, ("model.safetensors.index.json",)),
    "unknown model_type": ("config.json", edit_config(lambda config, _: config.update(model_type="llama")), CONFIG,
                           ("config.json", "model_type", "llama", "give the folder of")),
    "missing fields": ("config.json", edit_config(drop_fields), CONFIG, ("config.json", "hidden_size", "n_routed_experts", "missing")),
    "contradictory fields": ("config.json", edit_config(contradict), CONFIG,
                             ("config.json", "num_experts_per_tok", "kv_source_layer_ids[0]", "16 experts")),
    "config that is no JSON": ("config.json", lambda data: data[:100], CONFIG, ("config.json", "JSON object")),
    "no config": ("config.json", None, CONFIG, ("config.json", "check the path")),
    "tokenizer of other weights": ("config.json", edit_config(lambda _, text: text.update(engram_compressed_vocab_size=3000)),
                                   ("run", "score", "serve", "generate", "bench step", "selfcheck"),
                                   ("tokenizer.json", "engram_compressed_vocab_size 3000", "does not belong")),
    "missing tokenizer": ("tokenizer.json", None, TOKENIZER, ("tokenizer.json", "needs its tokenizer.json")),
    "damaged tokenizer": ("tokenizer.json", lambda data: data[:1000], TOKENIZER, ("tokenizer.json", "damaged")),
}


class Work(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def file(self, name, content):
        with open(self.path(name), "wb") as f:
            f.write(content if isinstance(content, bytes) else json.dumps(content).encode())
        return self.path(name)

    def model(self, name, change):
        """The demo's folder with one file changed (None: left out)."""
        folder = tempfile.mkdtemp(dir=self.folder)
        for entry in os.listdir(DEMO):
            if entry != name:
                os.symlink(os.path.join(DEMO, entry), os.path.join(folder, entry))
        if change is not None:
            with open(os.path.join(DEMO, name), "rb") as f:
                data = f.read()
            with open(os.path.join(folder, name), "wb") as f:
                f.write(change(data))
        return folder

    def hadal(self, *arguments, text=None, out=subprocess.PIPE, limit=None):
        cap = (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))) if limit else None
        return subprocess.run([HADAL, *arguments], stdin=subprocess.DEVNULL if text is None else None, input=text, stdout=out,
                              stderr=subprocess.PIPE, timeout=240, preexec_fn=cap)

    def refused(self, done, *words):
        error = done.stderr.decode()
        self.assertEqual(done.returncode, 1, error)
        for word in words:
            self.assertIn(word, error)
        self.assertEqual(len(error.strip().split("\n\n")), 1, error)
        told = [line for line in error.splitlines() if not line.startswith("make-model: ")]      # progress, after a second
        self.assertTrue(told[0].startswith("hadal"), error)

    def command(self, name, folder):
        if name in ("inspect --layout-only", "make-model"):
            config = os.path.join(folder, "config.json")
            return ["inspect", "--layout-only", config] if name != "make-model" else [name, config, "-o", self.path("made")]
        requests = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": HI}
        return {"run": ["run", "hi"], "serve": ["serve", "--port", "0"], "selfcheck": ["selfcheck"],
                "score": ["score", "--tokens", self.file("ids.json", [1, 2])],
                "generate": ["generate", self.file("in.jsonl", requests), "-o", self.path("out.jsonl")],
                "inspect": ["inspect", folder], "bench step": ["bench", "step", "--threads", "1"],
                "encode": ["encode", self.file("body.json", HI), "--api", "chat"],
                "decode": ["decode", "--api", "chat", "--request", self.file("body.json", HI)]}[name] + (
                    ["--model", folder] if name != "inspect" else [])


class Folders(Work):
    def test_each_wrong_file_meets_each_command_that_reads_it(self):
        for name, (file, change, commands, words) in FOLDERS.items():
            folder = self.model(file, change)
            for command in commands:
                with self.subTest(f"{name}: {command}"):
                    self.refused(self.hadal(*self.command(command, folder)), folder, *words)
                    self.assertFalse(os.path.exists(self.path("made")))


class Values(Work):
    def score(self, tokens, *more, **how):
        return self.hadal("score", "--tokens", self.file("ids.json", tokens), *more, **how)

    def test_token_ids_of_score(self):
        for tokens, words in (([], ("no token",)), ([1, 99999], ("element 1", "99999", "4096")), ([1, -2], ("element 1", "-2")),
                              ([1, 2.5], ("element 1",)), (["a"], ("element 0",)), ({}, ("JSON array",)), (b"[1, ", ("JSON array",)),
                              ([1, 2**40], ("element 1",)), ([5] * 5000, ("5000 tokens", "4096", "shorten"))):
            with self.subTest(str(tokens)[:30]):
                self.refused(self.score(tokens), "ids.json", *words)
        self.refused(self.hadal("score", "--tokens", self.path("none.json")), "none.json", "check the path")
        self.refused(self.hadal("score", "--tokens", self.folder), self.folder, "folder")

    def test_requests_of_encode_and_decode(self):
        bad = b'{"model":"m","messages":[{"role":"user","content":"a\xff"}]}'
        for content, words in ((bad, ("UTF-8",)), (b"", ()), (b"{", ()), ({**HI, "messages": []}, ()), ([], ())):
            body = self.file("body.json", content)
            for command in (["encode", body, "--api", "chat"], ["decode", "--api", "chat", "--request", body]):
                with self.subTest(f"{command[0]} {content}"):
                    done = self.hadal(*command)
                    self.assertEqual(done.returncode, 1, done.stderr)
                    told = done.stderr + done.stdout
                    for word in words:
                        self.assertIn(word, told.decode())
                    self.assertTrue(words or b'"error"' in told, told)
        for wrong, words in ((self.folder, "folder"), (self.path("none"), "check the path")):
            self.refused(self.hadal("encode", wrong, "--api", "chat"), wrong, words)
            self.refused(self.hadal("decode", "--api", "chat", "--request", wrong), wrong, words)

    def decode_line(self, pieces, **more):
        line = {"id": "1", "api": "chat", "body": HI, "pieces": pieces, "finish": "stop", "usage": {"prompt_tokens": 1}, **more}
        done = self.hadal("decode", "--stdin-jsonl", text=json.dumps(line).encode())
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_token_ids_of_decode(self):
        self.assertIn("response", self.decode_line([[5, 6]]))
        for ids in ([99999], [5, 4096], [-1], [2**32 - 1], [1.5], ["a"]):
            with self.subTest(ids):
                error = self.decode_line(["x", ids])["error"]
                self.assertEqual((error["status"], error["body"]["error"]["param"]), (400, "pieces[1]"))
        self.assertIn("response", self.decode_line([[99999]], compat="recipe", body={**HI, "model": "DeepSeek-V4.1-Flash"}))

    def test_prompts_of_generate(self):
        def line(key, prompt):
            return json.dumps({"custom_id": key, "method": "POST", "url": "/v1/completions",
                               "body": {"model": "m", "prompt": prompt, "max_tokens": 1}})
        lines = [line("range", [1, 99999]), line("negative", [-1]), line("none", []), line("long", "word " * 6000)]
        data = "\n".join(lines).encode() + b'\n{"custom_id":"bytes","method":"POST","url":"/v1/completions","body":{"prompt":"\xff"}}\n'
        done = self.hadal("generate", self.file("in.jsonl", data), "-o", self.path("out.jsonl"))
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path("out.jsonl")) as f:
            results = {result["custom_id"]: result for result in map(json.loads, f)}
        for key, word in (("range", "99999"), ("negative", "prompt"), ("none", "prompt"), ("long", "4096")):
            self.assertEqual(results[key]["response"]["status_code"], 400, results[key])
            self.assertIn(word, results[key]["response"]["body"]["error"]["message"])
        self.assertIn("UTF-8", results[None]["error"]["message"])
        self.refused(self.hadal("generate", self.folder, "-o", self.path("other.jsonl")), self.folder, "directory")

    def test_a_prompt_of_bench_step_beyond_the_positions(self):
        self.refused(self.hadal("bench", "step", "--prompt", "5000", "--threads", "1"), "--prompt", "5000", "4096")


class Outputs(Work):
    def test_standard_output_on_a_full_disk(self):
        config = os.path.join(DEMO, "config.json")
        ids, body = self.file("ids.json", [1, 2]), self.file("body.json", HI)
        for command in (["score", "--tokens", ids], ["inspect", DEMO], ["inspect", "--json", DEMO],
                        ["inspect", "--layout-only", "--full", config], ["encode", body, "--api", "chat"],
                        ["decode", "--api", "chat", "--request", body], ["make-model", config, "-o", self.path("made")]):
            with self.subTest(command[:2]), open("/dev/full", "wb") as full:
                self.refused(self.hadal(*command, out=full), "standard output", "disk full")
        line = json.dumps({"id": 1, "text": "x"}).encode() + b"\n"
        for lines in (line, line * 9999):
            with open("/dev/full", "wb") as full:
                self.refused(self.hadal("encode", "--stdin-jsonl", text=lines, out=full), "standard output")

    def test_files_that_cannot_be_written(self):
        ids = self.file("ids.json", [1, 2])
        for path, word in ((self.path("no/logits.npy"), "No such file"), (self.folder, "directory"), ("/dev/full", "No space left")):
            self.refused(self.hadal("score", "--tokens", ids, "--logits", path), "--logits", path, word)
        config = os.path.join(DEMO, "config.json")
        self.refused(self.hadal("make-model", config, "-o", self.file("file", b"x") + "/made"), "file/made")
        self.refused(self.hadal("make-model", config, "-o", self.path("made"), "--tokenizer", self.path("none")), "none")

    def test_a_disk_that_fills_up(self):
        """RLIMIT_FSIZE: a write beyond it fails as one on a full disk does."""
        ids = self.file("ids.json", [1] * 64)
        self.refused(self.hadal("score", "--tokens", ids, "--logits", self.path("x.npy"), limit=100_000), "--logits", "incomplete")
        self.refused(self.hadal("make-model", os.path.join(DEMO, "config.json"), "-o", self.path("made"), limit=1_000_000),
                     self.path("made"), "room")
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("made")], [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
