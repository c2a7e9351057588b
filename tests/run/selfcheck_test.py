#!/usr/bin/env python3
"""hadal selfcheck against stored answers: selfcheck_test.py HADAL. A build or a machine that is wrong must be told from a right one."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
DEMO = os.path.join(os.path.dirname(os.path.dirname(HERE)), "models", "demo")
HADAL = sys.argv[1]


def selfcheck(*arguments):
    done = subprocess.run([HADAL, "selfcheck", "--model", DEMO, "--backend", "cpu", "--threads", "1", *arguments],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=280)
    return done.returncode, done.stdout, done.stderr


class Selfcheck(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "expected.json")
        with open(os.path.join(DEMO, "selfcheck.json")) as file:
            self.stored = json.load(file)

    def put(self, n_answers=2):
        self.stored["answers"] = self.stored["answers"][:n_answers]
        with open(self.path, "w") as file:
            json.dump(self.stored, file)

    def test_the_demo_model_answers_as_its_folder_says(self):
        code, out, err = selfcheck("--cpu-level", "base")
        self.assertEqual((code, err), (0, ""), out)
        self.assertRegex(out, r"\n4 answers: as stored in \S*selfcheck.json\n")

    def test_a_changed_id_fails_and_is_named(self):
        answer = self.stored["answers"][1]
        right = answer["ids"][3]
        answer["ids"][3] = right + 1
        self.put()
        code, out, err = selfcheck("--expect", self.path)
        self.assertEqual((code, err), (1, ""), out)
        self.assertIn(f"OTHER  answer 2 of 2, after a prompt of {len(answer['prompt'])} ids: id 4 is {right}, stored is {right + 1}", out)
        self.assertIn(f"1 of 2 answers are not those stored in {self.path}", out)
        self.assertIn("this build or this machine computes wrongly", out)

    def test_what_is_written_is_what_is_expected(self):
        code, out, err = selfcheck("--write", self.path, "--max-tokens", "2", "--cpu-level", "base")
        self.assertEqual((code, err), (0, ""), out)
        with open(self.path) as file:
            written = json.load(file)
        for answer, stored in zip(written["answers"], self.stored["answers"], strict=True):
            self.assertEqual(answer["prompt"], stored["prompt"])
            self.assertEqual(answer["ids"], stored["ids"][:2])
        self.stored = written
        self.put(1)
        self.assertEqual(selfcheck("--expect", self.path)[0], 0)

    def test_bad_files_are_refused(self):
        self.stored["weight_bytes"] += 1
        self.put()
        code, _, err = selfcheck("--expect", self.path)
        self.assertEqual(code, 1)
        self.assertIn("was written by a model of", err)
        code, _, err = selfcheck("--expect", self.path + ".missing")
        self.assertEqual(code, 1)
        self.assertIn(self.path + ".missing", err)
        code, _, err = selfcheck("--write", "/nonexistent/file", "--expect", self.path)
        self.assertEqual(code, 2)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=1)
