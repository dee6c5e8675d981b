"""Model folders: what tconv writes is loaded by the real transformers, and gives the same logits."""
import json
import os

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is looked up
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import torch
import transformers
from huggingface_hub import split_torch_state_dict_into_shards
from transformers import GPT2Config, LlamaConfig

CONFIGS = {
    # GPT-2 ties its head to its embeddings; Llama has a head of its own here.
    "gpt2": GPT2Config(n_layer=2, n_head=2, n_embd=32, n_positions=32, vocab_size=64),
    "llama": LlamaConfig(
        num_hidden_layers=2, hidden_size=32, intermediate_size=48, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=64, max_position_embeddings=32, tie_word_embeddings=False,
    ),
}  # fmt: skip
transformers.utils.logging.disable_progress_bar()
WORDS = torch.tensor([[1, 5, 9, 2, 60, 33]])


def run(checks, tconv):
    for name, config in CONFIGS.items():
        for shards in (None, "20KB"):
            with checks.case(f"{name}, {'shards' if shards else 'one file'}"):
                one_model(tconv, checks, config, shards)
    with checks.case("a snapshot of links"), tconv.folder() as work:
        snapshot(tconv, checks, work)


def logits(folder, **how):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, **how).eval()
    with torch.no_grad():
        return model(WORDS).logits


def save_bin(model, folder, shards):
    """As transformers did before it wrote safetensors alone."""
    state = model.state_dict()
    folder.mkdir()
    model.config.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    if not shards:
        torch.save(state, folder / "pytorch_model.bin")
        return
    split = split_torch_state_dict_into_shards(
        state, filename_pattern="pytorch_model{suffix}.bin", max_shard_size=shards
    )
    for file, names in split.filename_to_tensors.items():
        torch.save({name: state[name] for name in names}, folder / file)
    index = {"metadata": {**split.metadata, "total_parameters": 1234}, "weight_map": split.tensor_to_filename}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))


def files_of(folder, ending):
    return sorted(path.name for path in folder.iterdir() if path.name.endswith(ending))


def one_model(tconv, checks, config, shards):
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        wanted = model(WORDS).logits
    with tconv.folder() as work:
        convert(tconv, checks, work, model, wanted, shards)


def convert(tconv, checks, work, model, wanted, shards):
    source = work / "bin"
    save_bin(model, source, shards)
    checks.true(torch.equal(logits(source), wanted), lambda: "transformers reads its own .bin")
    ways = {
        "safetensors": [("bin", "safetensors")],
        "through deathtensors": [("bin", "dt"), ("dt", "back")],
        "back to bin": [("safetensors", "torch")],
    }
    formats = {"safetensors": "safetensors", "dt": "deathtensors", "back": "safetensors", "torch": "pt"}
    for way, steps in ways.items():
        for before, after in steps:
            tconv.run("-q", "--verify", work / before, f"{work / after}/", "-t", formats[after])
        last = work / steps[-1][1]
        checks.true(torch.equal(logits(last), wanted), lambda: f"{way}: other logits")
        if shards:
            checks.equal(
                f"{way}: shards",
                len(files_of(last, ".bin" if after == "torch" else ".safetensors")),
                len(files_of(source, ".bin")),
            )
            index = json.loads(next(last.glob("*.index.json")).read_text())
            checks.equal(f"{way}: total_parameters", index["metadata"].get("total_parameters"), 1234)
        checks.equal(
            f"{way}: configuration", (last / "config.json").read_bytes(), (source / "config.json").read_bytes()
        )
    # What transformers itself has saved, in a variant, and put together again.
    saved = work / "saved"
    model.save_pretrained(saved, max_shard_size=shards or "1GB", variant="fp32")
    tconv.run("-q", "--variant", "fp32", saved, f"{work / 'variant'}/", "-t", "deathtensors")
    tconv.run("-q", work / "variant", f"{work / 'again'}/", "-t", "safetensors")
    checks.true(torch.equal(logits(work / "again", variant="fp32"), wanted), lambda: "variant: other logits")
    tconv.run("-q", "--merge", source, f"{work / 'merged'}/", "-t", "safetensors")
    checks.equal("merged", files_of(work / "merged", ".safetensors"), ["model.safetensors"])
    checks.true(torch.equal(logits(work / "merged"), wanted), lambda: "merged: other logits")


def snapshot(tconv, checks, work):
    """The layout of huggingface_hub's cache: snapshots of links to blobs."""
    torch.manual_seed(8)
    model = transformers.AutoModelForCausalLM.from_config(CONFIGS["llama"]).eval()
    with torch.no_grad():
        wanted = model(WORDS).logits
    cache = work / "models--some--model"
    links = cache / "snapshots" / "0123456789abcdef"
    for folder in (cache / "blobs", links):
        folder.mkdir(parents=True)
    plain = work / "plain"
    save_bin(model, plain, "20KB")
    for number, file in enumerate(sorted(plain.iterdir())):
        file.rename(cache / "blobs" / f"{number:064x}")
        (links / file.name).symlink_to(f"../../blobs/{number:064x}")
    tconv.run("-q", links, f"{work / 'out'}/", "-t", "safetensors")
    checks.true(torch.equal(logits(work / "out"), wanted), lambda: "other logits")
    checks.equal("no links", [path.name for path in (work / "out").iterdir() if path.is_symlink()], [])
