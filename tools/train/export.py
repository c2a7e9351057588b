#!/usr/bin/env python3
"""Writes the trained weights in the released layout: export.py MASTER_DIR MODEL_DIR (config.json, tokenizer.json there)."""
import json, os, sys
import storage

if __name__ == "__main__":
    master, folder = sys.argv[1:3]
    config = json.load(open(os.path.join(folder, "config.json")))
    P, bias = storage.load_master(master)
    print(storage.write_checkpoint(folder, config["text_config"], P, bias), "bytes of tensors")
