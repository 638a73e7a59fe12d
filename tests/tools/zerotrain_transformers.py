"""What transformers makes of models that zerotrain writes and reads; test_zerotrain_foreign.py runs it.

usage: zerotrain_transformers.py make FOLDER KIND CONFIG      a model with random weights; CONFIG is JSON
       zerotrain_transformers.py loss FOLDER LENGTH FIRST...   the mean loss of a text's windows: JSON of tokens on standard
                                                               input, where they begin
       zerotrain_transformers.py text FOLDER COUNT             tokens after those on standard input, greedily, and how far
                                                               the best two logits are apart at each
       zerotrain_transformers.py check FOLDER GRADIENTS LENGTH how far logits, loss and gradients are apart: JSON of
                                                               sequences and of what zerotrain_foreign prints
       zerotrain_transformers.py same FOLDER FOLDER            how far the logits of two models are apart: JSON of tokens on
                                                               standard input
       zerotrain_transformers.py gguf FILE FOLDER              a model from a GGUF file of a Llama
"""
import json
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM


def load(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.eval()
    return model


def make(folder, kind, config):
    torch.manual_seed(7)
    config = AutoConfig.for_model(kind, bos_token_id=None, eos_token_id=None, **json.loads(config))
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        # Larger than where training begins, biases and gains too, so that each of them shows.
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.1)
    model.save_pretrained(folder)


def loss(folder, length, *starts):
    model, given, losses = load(folder), json.load(sys.stdin), []
    for start in map(int, starts):
        window = torch.tensor(given[start:start + int(length) + 1])
        with torch.no_grad():
            logits = model(window[None, :-1]).logits[0].double()
        losses.append(torch.nn.functional.cross_entropy(logits, window[1:]).item())
    print(sum(losses) / len(losses))


def text(folder, count):
    model, tokens = load(folder), json.load(sys.stdin)
    out = model.generate(torch.tensor([tokens]), max_new_tokens=int(count), min_new_tokens=int(count), do_sample=False,
                         pad_token_id=0, eos_token_id=None, output_logits=True, return_dict_in_generate=True)
    best = [logits[0].topk(2).values.tolist() for logits in out.logits]
    print(json.dumps({"tokens": out.sequences[0].tolist(), "gaps": [a - b for a, b in best]}))


def check(folder, gradients, length):
    from safetensors.torch import load_file
    model, given = load(folder), json.load(sys.stdin)
    tokens = torch.tensor(given["sequences"]).reshape(-1, int(length) + 1)
    logits = model(tokens[:, :-1]).logits
    found = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    found.backward()
    ours, worst = load_file(f"{gradients}/model.safetensors"), 0
    for name, p in model.named_parameters():
        worst = max(worst, ((ours.pop(name) - p.grad).norm() / p.grad.norm()).item())
    assert not ours, ours.keys()
    print(json.dumps({"logits": (torch.tensor(given["logits"]).reshape(logits.shape) - logits).abs().max().item(),
                      "loss": abs(found.item() - given["loss"]) / found.item(), "gradients": worst}))


def same(first, second):
    tokens = torch.tensor([json.load(sys.stdin)])
    with torch.no_grad():
        print((load(first)(tokens).logits - load(second)(tokens).logits).abs().max().item())


def gguf(path, folder):
    import gguf as reader
    from safetensors.torch import save_file
    file = reader.GGUFReader(path)

    def field(name):
        return file.fields[f"llama.{name}"].contents()

    heads, kv_heads = field("attention.head_count"), field("attention.head_count_kv")
    names = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
             "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    whole = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
             "output.weight": "lm_head.weight"}
    tensors = {}
    for t in file.tensors:
        x = torch.tensor(reader.dequantize(t.data, t.tensor_type), dtype=torch.float32)
        if t.name in whole:
            tensors[whole[t.name]] = x
            continue
        _, number, name, _ = t.name.split(".")
        if name in ("attn_q", "attn_k"):
            # There pairs of a turn lie next to each other.
            n = heads if name == "attn_q" else kv_heads
            x = x.reshape(n, x.shape[0] // n // 2, 2, x.shape[1]).transpose(1, 2).reshape(x.shape)
        tensors[f"model.layers.{number}.{names[name]}.weight"] = x.contiguous()
    config = AutoConfig.for_model(
        "llama", hidden_size=field("embedding_length"), intermediate_size=field("feed_forward_length"),
        num_hidden_layers=field("block_count"), num_attention_heads=heads, num_key_value_heads=kv_heads,
        max_position_embeddings=field("context_length"), vocab_size=tensors["model.embed_tokens.weight"].shape[0],
        rms_norm_eps=field("attention.layer_norm_rms_epsilon"), rope_theta=field("rope.freq_base"),
        tie_word_embeddings="lm_head.weight" not in tensors, bos_token_id=None, eos_token_id=None)
    config.save_pretrained(folder)
    save_file(tensors, f"{folder}/model.safetensors", metadata={"format": "pt"})


what, *rest = sys.argv[1:]
{"make": make, "loss": loss, "text": text, "check": check, "same": same, "gguf": gguf}[what](*rest)
