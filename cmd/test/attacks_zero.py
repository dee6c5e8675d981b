"""Attacks on DeepSpeed's ZeRO checkpoints (W01 to W04)."""

from attacks import Input, row
from checkpoint_files import dict_of, flat, instance, model, numbers, optimiser, shapes, size, zero
from files import Tensor, f32
from harness import INVALID, IO, OK, UNSAFE, UNSUPPORTED
from pickles import call, pickled, pt, storage, tensor

LATEST = "latest"
GROUPS = [numbers(8)]
PARAMETERS = {"a": (2, 3), "b": (2,)}
HELD = {"a": Tensor("F32", [2, 3], numbers(6)), "b": f32(6, 7)}


def given(optimisers=None, models=None, **more):
    optimisers = [optimiser(GROUPS)] if optimisers is None else optimisers
    models = [model([shapes(**PARAMETERS)])] if models is None else models
    return lambda folder: zero(folder, optimisers, models, **more)


def attack(row_id, outcome):
    return row(row_id, outcome, LATEST, mention="")


@attack("W01", UNSAFE)
def tags():
    for tag in ("../x", "/etc", "a/b", "..", "global_step1/"):
        yield Input(repr(tag), given(latest=tag))
    yield Input("1 MB", given(latest="g" * 1_000_000), INVALID)
    yield Input("empty", given(latest=""), INVALID)
    yield Input("two lines", given(latest="a\nb"), INVALID)
    yield Input("no such folder", given(latest="global_step2"), IO)
    yield Input("a newline at its end", given(latest="global_step1\n"), OK, tensors=HELD)


@attack("W02", INVALID)
def ranks():
    half = [[numbers(4)], [numbers(4, 4)]]
    two = [optimiser(groups, count=2) for groups in half]
    yield Input("two", given(two), OK, tensors=HELD)
    yield Input("one less", given(two[:1]))
    yield Input("one more", given([*two, two[0]]))
    yield Input("a list of counts", given([optimiser(groups, count=[2, 1]) for groups in half]), OK, tensors=HELD)
    twelve = [optimiser([numbers(2, 2 * rank)], count=12) for rank in range(12)]
    long = {"a": Tensor("F32", [24], numbers(24))}
    yield Input("twelve, as numbers", given(twelve, [model([shapes(a=(24,))])]), OK, tensors=long)
    yield Input("two stages", given([two[0], optimiser(half[1], stage=1, count=2)]))
    yield Input("two counts", given([two[0], optimiser(half[1], count=3)]))
    yield Input("two prefixes", mixed(two, "bf16_"))
    yield Input("a rank missing", without(two, "zero_pp_rank_0_mp_rank_00_optim_states.pt"))
    yield Input("no model file", without(two, "mp_rank_00_model_states.pt"))
    yield Input("no optimiser", given([]))
    yield Input("tensor parallel", beside("zero_pp_rank_0_mp_rank_01_optim_states.pt"), UNSUPPORTED)
    yield Input("experts", beside("expp_rank_0_mp_rank_00_optim_states.pt"), UNSUPPORTED)


def mixed(optimisers, prefix):
    def write(folder):
        given(optimisers)(folder)
        tag = folder / "global_step1"
        (tag / f"{prefix}zero_pp_rank_0_mp_rank_00_optim_states.pt").write_bytes(optimisers[0])

    return write


def without(optimisers, name):
    def write(folder):
        given(optimisers)(folder)
        (folder / "global_step1" / name).unlink()

    return write


def beside(name):
    def write(folder):
        given()(folder)
        (folder / "global_step1" / name).write_bytes(optimiser(GROUPS))

    return write


@attack("W03", INVALID)
def layouts():
    def shaped(label, outcome=None, groups=None, **parameters):
        found = parameters or PARAMETERS
        return Input(label, given(None if groups is None else [optimiser(groups)], [model([shapes(**found)])]), outcome)

    yield shaped("shorter", groups=[numbers(6)])
    yield shaped("longer", groups=[numbers(12)])
    yield shaped("as long as rounding explains", OK, [numbers(8)], a=(7,))
    yield shaped("two groups for one", groups=[numbers(8), numbers(8)])
    yield shaped("no group", groups=[])
    yield shaped("2^40 by 2^40", a=(2**40, 2**40))
    yield shaped("2^62", a=(2**62,))
    yield shaped("negative", a=(-6,))
    yield shaped("float", a=[6.0])
    yield shaped("text", a="6")
    yield shaped("number", a=6)
    for padding in (-1, 2**62, 2**63 - 1, "x", 1.5):
        both = [optimiser(GROUPS, param_alignment_paddings=[[padding, 0]])]
        yield Input(f"padding {padding}", given(both))
    yield Input("paddings of too few", given([optimiser(GROUPS, param_alignment_paddings=[[0]])]))
    yield Input("paddings of too many", given([optimiser(GROUPS, param_alignment_paddings=[[0, 0, 0]])]))
    gaps = [optimiser([numbers(12)], param_alignment_paddings=[[2, 2]])]
    held = {"a": HELD["a"], "b": f32(8, 9)}
    yield Input("paddings", given(gaps), OK, tensors=held)
    twice = [shapes(a=(8,)), shapes(a=(8,))]
    yield Input("a parameter in two groups", given([optimiser(GROUPS * 2)], [model(twice)]))
    module = dict_of({"a": tensor(storage("0", 8), 0, (8,), (1,))})
    also = model([shapes(**PARAMETERS)], {"0": numbers(8)}, module=module, buffer_names=["a"])
    yield Input("a parameter that is a buffer", given(models=[also]))
    yield Input("ranks with other groups", given([optimiser([numbers(4)], count=2), optimiser(GROUPS * 2, count=2)]))
    yield Input("a flat tensor that is none", given([pt(pickled(flat_state(5)), {})]))
    for label, shared in {"itself": {"a": "a"}, "a ring": {"x": "y", "y": "x"}, "a parameter": {"b": "a"}}.items():
        models = [model([shapes(**PARAMETERS)], shared_params=shared)]
        yield Input(f"shared with {label}", given(models=models))
    models = [model([shapes(**PARAMETERS)], shared_params={"c": "nothing"})]
    yield Input("shared with nothing", given(models=models), OK, tensors=HELD)
    models = [model([shapes(**PARAMETERS)], shared_params={"c": "a"})]
    yield Input("shared", given(models=models), OK, tensors={**HELD, "c": HELD["a"]})
    third = [optimiser([numbers(4)], 3, 2), optimiser([numbers(5)], 3, 2)]
    yield Input("stage 3, ranks of different lengths", given(third, [model([shapes(a=(8,))])] * 2))
    third = [optimiser([numbers(4)], 3, 2), optimiser([numbers(4, 4)], 3, 2)]
    yield Input("stage 3, longer", given(third, [model([shapes(a=(6,))])] * 2))
    yield Input("stage 3", given(third, [model([shapes(a=(8,))])] * 2), OK,
                tensors={"a": Tensor("F32", [8], numbers(8))})  # fmt: skip


def flat_state(value):
    state = {"zero_stage": 2, "partition_count": 1, "single_partition_of_fp32_groups": [value]}
    return {"optimizer_state_dict": state}


@attack("W04", UNSAFE)
def code():
    evil = [optimiser(GROUPS, loss_scaler=call("posix", "system", "true"))]
    yield Input("posix.system", given(evil), message="posix.system")
    odd = instance("deepspeed.runtime.fp16.loss_scaler", "LossScaler", {"__reduce__": 5, "x": [1, {"y": None}]})
    yield Input("a scaler of odd state", given([optimiser(GROUPS, loss_scaler=odd)]), OK, tensors=HELD)
    for stage in (0, 4, "3", 10**30, -1):
        state = pt(pickled({"optimizer_state_dict": {"zero_stage": stage, "partition_count": 1}}), {})
        yield Input(f"stage {stage!r}", given([state]), UNSUPPORTED)
    experts = model([shapes(**PARAMETERS)], ds_autoep_layers=[{"checkpoint_format": "zero3_partitioned"}])
    yield Input("experts", given(models=[experts]), UNSUPPORTED)
    enum = call("deepspeed.runtime.zero.config", "ZeroStageEnum", 2)
    yield Input("a stage as a member of its class", given([optimiser(GROUPS, zero_stage=enum)]), OK, tensors=HELD)
    address = instance("deepspeed.utils.tensor_fragment", "fragment_address", {"numel": 2, "start": 0})
    more = [optimiser(GROUPS, param_slice_mappings=[dict_of({"a": address})], sizes=size(1), extra=flat(8))]
    yield Input("what else the files name", given(more), OK, tensors=HELD)
