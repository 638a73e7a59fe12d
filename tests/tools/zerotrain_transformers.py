"""What transformers makes of GPT-2s that zerotrain writes and reads; test_zerotrain_gpt2.py runs it.

usage: zerotrain_transformers.py make FOLDER LAYERS DIM HEADS CONTEXT VOCAB   a model with random weights
       zerotrain_transformers.py loss FOLDER FIRST COUNT...                   the mean loss of a text's windows: JSON of
                                                                              tokens on standard input, where they begin
       zerotrain_transformers.py text FOLDER COUNT                            tokens after those on standard input, greedily
"""
import json
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel


def load(folder):
    model = GPT2LMHeadModel.from_pretrained(folder)
    model.eval()
    return model


def make(folder, layers, dim, heads, context, vocab):
    torch.manual_seed(7)
    model = GPT2LMHeadModel(GPT2Config(n_layer=layers, n_embd=dim, n_head=heads, n_positions=context, vocab_size=vocab,
                                       bos_token_id=None, eos_token_id=None))
    with torch.no_grad():
        # Larger than where training begins, biases and gains too, so that each of them shows.
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.1)
    model.save_pretrained(folder)


def loss(folder, *starts):
    model, given = load(folder), json.load(sys.stdin)
    context, losses = model.config.n_positions, []
    for start in starts:
        window = torch.tensor(given[start:start + context + 1])
        with torch.no_grad():
            logits = model(window[None, :-1]).logits[0].double()
        losses.append(torch.nn.functional.cross_entropy(logits, window[1:]).item())
    print(sum(losses) / len(losses))


def text(folder, count):
    model, tokens = load(folder), json.load(sys.stdin)
    out = model.generate(torch.tensor([tokens]), max_new_tokens=count, do_sample=False, pad_token_id=0)
    print(json.dumps(out[0].tolist()))


what, folder, *rest = sys.argv[1:]
{"make": make, "loss": loss, "text": text}[what](folder, *map(int, rest))
