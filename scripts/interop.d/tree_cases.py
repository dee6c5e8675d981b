"""Checkpoints as people have them, and every kind of value and tensor that a tree can hold.

each() yields (name, object, whether what shares a storage is compared, how torch.load must be called).
"""
import collections
import math
import random
import struct

import numpy as np
import torch
from torch import nn
from torch.optim import lr_scheduler as ls

torch.manual_seed(1)


OD = collections.OrderedDict


NPG = [np._core.multiarray._reconstruct, np._core.multiarray.scalar, np.ndarray, np.dtype] + [type(np.dtype(x)) for x in ('u4', 'i8', 'f4', 'f8', 'bool', 'u1')]


def same(a, b, p='', sh=None):

    def bad(w):
        raise AssertionError('%s: %s: %r / %r' % (p, w, a, b))
    if type(a) is not type(b):
        bad('type')
    if isinstance(a, torch.Tensor):
        if a.dtype != b.dtype or a.shape != b.shape or a.requires_grad != b.requires_grad or (a.layout != b.layout) or (a.is_quantized != b.is_quantized):
            bad('tensor')
        if a.is_quantized:
            if a.qscheme() != b.qscheme() or not torch.equal(a.int_repr(), b.int_repr()) or (not torch.equal(a.dequantize(), b.dequantize())):
                bad('quantised')
            return
        if a.layout == torch.sparse_coo:
            if a.is_coalesced() != b.is_coalesced() or not torch.equal(a._indices(), b._indices()) or (not torch.equal(a._values(), b._values())):
                bad('coo')
            return
        if a.layout != torch.strided:
            if not torch.equal(a.to_dense(), b.to_dense()):
                bad('sparse')
            return
        if a.numel() and (not torch.equal(a.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8), b.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8))):
            bad('values')
        if a.__dict__ or b.__dict__:
            same(dict(a.__dict__), dict(b.__dict__), p + '.__dict__', sh)
        if sh is not None and a.numel():
            sh.append((p, a.untyped_storage().data_ptr(), b.untyped_storage().data_ptr(), a.stride(), b.stride(), a.is_conj() or a.is_neg()))
        return
    if isinstance(a, np.ndarray):
        if a.dtype != b.dtype or a.shape != b.shape or a.tobytes() != b.tobytes():
            bad('ndarray')
    elif isinstance(a, np.generic):
        if a.dtype != b.dtype or a.tobytes() != b.tobytes():
            bad('np scalar')
    elif isinstance(a, dict):
        if [type(k) for k in a] != [type(k) for k in b] or list(map(repr, a)) != list(map(repr, b)):
            bad('keys')
        if getattr(a, 'default_factory', 0) != getattr(b, 'default_factory', 0):
            bad('factory')
        for (k, x), (_, y) in zip(a.items(), b.items()):
            same(x, y, '%s[%r]' % (p, k), sh)
        if type(a) is OD:
            same(dict(a.__dict__), dict(b.__dict__), p + '.__dict__', sh)
    elif isinstance(a, (list, tuple)):
        if len(a) != len(b):
            bad('length')
        for i, (x, y) in enumerate(zip(a, b)):
            same(x, y, '%s[%d]' % (p, i), sh)
    elif isinstance(a, float):
        if struct.pack('>d', a) != struct.pack('>d', b):
            bad('float')
    elif isinstance(a, complex):
        same(a.real, b.real, p, sh)
        same(a.imag, b.imag, p, sh)
    elif a != b:
        bad('value')


def net():
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))


def train(o_f, steps=2):
    m = net()
    o = o_f(m.parameters())
    for _ in range(steps):

        def f():
            o.zero_grad()
            l = m(torch.randn(6, 4)).pow(2).sum()
            l.backward()
            return l
        f()
        o.step(f) if isinstance(o, torch.optim.LBFGS) else o.step()
    return (m, o)


DTS = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu]


def each():
    tests = []

    def case(name, value, sharing=False, **load):
        tests.append((name, value, sharing, load))

    m, adam = train(lambda p: torch.optim.Adam(p, lr=0.001))
    case('state_dict', m.state_dict())
    case('plain dict', dict(m.state_dict()))
    case('adam checkpoint', {'epoch': 7, 'loss': 0.25, 'name': 'tiny', 'model_state_dict': m.state_dict(), 'optimizer_state_dict': adam.state_dict(), 'flags': {'amp': True, 'none': None}})
    for n, f in {'sgd': lambda p: torch.optim.SGD(p, 0.1), 'sgd momentum nesterov': lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True), 'adamw amsgrad': lambda p: torch.optim.AdamW(p, amsgrad=True), 'rmsprop': lambda p: torch.optim.RMSprop(p, centered=True), 'adagrad': torch.optim.Adagrad, 'lbfgs': lambda p: torch.optim.LBFGS(p, max_iter=3), 'nadam': torch.optim.NAdam, 'rprop': torch.optim.Rprop, 'adafactor': torch.optim.Adafactor, 'radam': torch.optim.RAdam, 'asgd': torch.optim.ASGD}.items():
        case('optimizer.pt ' + n, train(f)[1].state_dict())
    two = train(lambda p: (lambda l: torch.optim.AdamW([{'params': l[:2], 'lr': 0.0001, 'name': 'a'}, {'params': l[2:], 'weight_decay': 0.0}]))(list(p)))[1]
    case('two groups', two.state_dict())
    for n, f in {'StepLR': lambda o: ls.StepLR(o, 3), 'LambdaLR': lambda o: ls.LambdaLR(o, lambda e: 0.9 ** e), 'MultiStepLR (Counter)': lambda o: ls.MultiStepLR(o, [3, 5, 5]), 'OneCycleLR': lambda o: ls.OneCycleLR(o, 0.1, total_steps=9), 'Cosine': lambda o: ls.CosineAnnealingLR(o, 9), 'Warm': lambda o: ls.CosineAnnealingWarmRestarts(o, 4), 'Plateau (inf)': lambda o: ls.ReduceLROnPlateau(o), 'Sequential': lambda o: ls.SequentialLR(o, [ls.ConstantLR(o), ls.ExponentialLR(o, 0.9)], [2])}.items():
        s = f(torch.optim.SGD(net().parameters(), 0.1))
        s.step(1.0) if 'Plateau' in n else s.step()
        case('scheduler.pt ' + n, s.state_dict())
    case('GradScaler', torch.amp.GradScaler('cpu').state_dict())
    case('EMA', torch.optim.swa_utils.AveragedModel(net()).state_dict())
    case('compiled', OD((('_orig_mod.' + k, v) for k, v in m.state_dict().items())))
    case('lightning', {'epoch': 3, 'global_step': 120, 'pytorch-lightning_version': '2.6.0', 'state_dict': m.state_dict(), 'loops': {'fit_loop': {'state_dict': {}, 'epoch_loop.batch_progress': {'total': {'ready': 4, 'completed': 4}, 'is_last_batch': False}, 'epoch_progress': {'current': {'ready': 1}}}, 'validate_loop': {}}, 'callbacks': {"ModelCheckpoint{'monitor': 'val_loss', 'mode': 'min'}": {'best_model_score': torch.tensor(0.25), 'best_model_path': '/x/epoch=3.ckpt', 'kth_value': torch.tensor(math.inf), 'best_k_models': {'/x/a.ckpt': torch.tensor(0.5)}}, 'EarlyStopping': {'wait_count': 0, 'best_score': torch.tensor(0.1)}}, 'optimizer_states': [adam.state_dict()], 'lr_schedulers': [ls.StepLR(adam, 3).state_dict()], 'hparams_name': 'kwargs', 'hyper_parameters': {'lr': 0.001, 'layers': [4, 5], 'act': 'gelu', 'd': None}})
    rs = random.Random(1).getstate()
    npst = np.random.RandomState(1).get_state()
    case('rng_state.pth (HF)', {'python': rs, 'numpy': npst, 'cpu': torch.random.get_rng_state(), 'cuda': [torch.arange(16, dtype=torch.uint8)]}, safe=NPG)
    case('random_states_0.pkl (accelerate)', {'step': 10, 'random_state': rs, 'numpy_random_seed': npst, 'torch_manual_seed': torch.get_rng_state(), 'torch_cuda_manual_seed': []}, safe=NPG)
    case('rng python only', {'python': rs, 'cpu': torch.get_rng_state()})
    case('peft adapter', {'base_model.model.layers.0.lora_A.default.weight': torch.randn(2, 3), 'base_model.model.layers.0.lora_B.default.weight': torch.zeros(3, 2)})
    case('fsdp optimizer', {'state': {'layers.0.weight': {'step': torch.tensor(3.0), 'exp_avg': torch.randn(2)}}, 'param_groups': [{'lr': 0.1, 'betas': (0.9, 0.999), 'params': ['layers.0.weight']}]})
    case('dotted keys', {'a.b': torch.ones(1), 'a': {'b': torch.zeros(2), 'b.c': torch.ones(3)}, 'a.b.c': torch.zeros(4), 'a.b~1': torch.ones(5)})
    case('int and str keys', {1: torch.ones(1), '1': torch.zeros(1), -3: 'x', '01': torch.ones(2)})
    case('odd keys', {None: 1, True: torch.ones(1), 2.5: torch.ones(2), (1, 'a'): torch.ones(3), b'k': 4, '': torch.ones(4), '?1': torch.ones(5)})
    case('empty', {'d': {}, 'l': [], 't': (), 's': set(), 'o': OD(), 'str': '', 'c': collections.Counter(), 'sz': torch.Size([]), 'ba': bytearray()})
    case('floats', [0.1, -0.0, 0.0, 1e+308, 5e-324, math.inf, -math.inf, math.nan, 1.0, 1e+16, 123456789.123, struct.unpack('>d', bytes.fromhex('7ff800000000beef'))[0], struct.unpack('>d', bytes.fromhex('fff8000000000000'))[0]])
    case('ints', [0, -1, 255, 256, 65536, 2 ** 31, -2 ** 31 - 1, 2 ** 53 + 1, 2 ** 63 - 1, -2 ** 63, 2 ** 63, 2 ** 64, -2 ** 70, 10 ** 60, True, False])
    case('strings', ['a', 'ü', '\x00', '"\\\n\t', '\u2028', '\ud800', 'x' * 70000, '😀', '[]', 'null'])
    case('bytes', [b'x', bytes(range(256)), bytearray(b'ab')])
    case('complex', [1j, complex(-0.0, math.inf), complex(math.nan, 1)])
    case('torch leaves', {'d': [torch.float32, torch.bfloat16, torch.uint16, torch.float8_e4m3fn, torch.complex64], 'dev': [torch.device('cpu'), torch.device('cuda', 1), torch.device('meta')], 's': torch.Size([2, 0, 3]), 'l': torch.strided})
    case('sets', [{1, 'a', 2.5, (1, 2)}, {None}, {True}])
    case('counter', collections.Counter({'a': 2, 5: 1}))
    case('defaultdict', collections.defaultdict(list, {'a': [torch.ones(1)], 3: []}), full=True)
    case('defaultdict of dict', collections.defaultdict(dict, {0: {'step': torch.tensor(1.0)}}), full=True)
    for factory in int, float, str, set, tuple, bool, None:
        case(f'defaultdict of {factory}', {'d': collections.defaultdict(factory, {'a': 1}), 'w': torch.ones(1)}, full=True)
    case('tuples', (1, (torch.ones(1), [torch.ones(2), (None,)]), ()))
    case('OrderedDict in list', [OD([(3, torch.ones(1)), ('x', OD())])])
    od = OD(w=torch.ones(1))
    od._metadata = OD([('', {'version': 1}), ('l.0', {'version': 2, 'x': torch.ones(1)})])
    case('_metadata with a tensor', {'sd': od})
    deep = torch.ones(1)
    for i in range(200):
        deep = [deep] if i % 3 else {'k': deep}
    case('deep', deep)
    case('wide', {'l.%d.w' % i: torch.full((1,), float(i)) for i in range(3000)})
    for n, o in {'bare tensor': torch.randn(2), 'bare scalar': torch.tensor(3), 'list root': [torch.ones(1), 2], 'int root': 5, 'none root': None, 'str root': 'x', 'tuple root': (1,), 'parameter root': nn.Parameter(torch.ones(2))}.items():
        case(n, o)
    case('dtypes', {str(d): torch.randn(3, 4).to(d) for d in DTS})
    case('shapes', [torch.tensor(1.0), torch.zeros(0, 3), torch.zeros(0), torch.randn(1, 1, 1, 2)])
    case('parameters', {'p': nn.Parameter(torch.ones(2)), 'f': nn.Parameter(torch.ones(2), requires_grad=False), 'i': nn.Parameter(torch.ones(2, dtype=torch.int64), requires_grad=False), 'g': torch.ones(2, requires_grad=True), 'buf': nn.Buffer(torch.ones(3))})
    x = torch.ones(2)
    x.note = 'hello'
    x.n = [1, torch.zeros(1)]
    case('attributes', {'x': x})
    b = torch.randn(6, 8)
    case('tied', {'emb': b, 'head': b, 'again': [b]}, True)
    case('views', {'row': b[2], 'base': b, 't': b.t(), 'cols': b[:, 1:7:2], 'block': b[1:4, 2:5], 'tail': b.reshape(-1)[40:]}, True)
    case('views without a base', {'a': b[1], 'b': b[3]})
    case('parameter views', {'w': nn.Parameter(b), 'v': nn.Parameter(b).detach()}, True)
    case('expand', {'e': torch.randn(1, 5).expand(4, 5), 'z': torch.zeros(1).expand(1000)})
    case('channels_last', {'w': torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last), 't': torch.randn(3, 4).t()}, True)
    case('overlap', {'u': torch.arange(5.0).unfold(0, 3, 1)})
    case('conj', {'c': torch.randn(3, dtype=torch.complex64).conj(), 'n': torch.randn(3, dtype=torch.complex64).conj().imag})
    i = torch.tensor([[0, 1, 1], [2, 0, 0]])
    sp = torch.sparse_coo_tensor(i, torch.tensor([1.0, 2.0, 3.0]), (2, 3))
    case('sparse', {'coo': sp, 'c': sp.coalesce(), 'csr': sp.to_dense().to_sparse_csr(), 'csc': sp.to_dense().to_sparse_csc(), 'bsr': torch.randn(4, 4).to_sparse_bsr((2, 2))})
    case('quantised', {'q': torch.quantize_per_tensor(torch.randn(3, 4), 0.1, 3, torch.qint8), 'u': torch.quantize_per_tensor(torch.randn(3), 0.25, 0, torch.quint8), 'c': torch.quantize_per_channel(torch.randn(2, 3), torch.tensor([0.1, 0.2]), torch.tensor([0, 1]), 0, torch.qint8)})
    case('numpy', {'a': np.arange(6, dtype='f4').reshape(2, 3), 's': np.float64(0.5), 'i': np.int64(3), 'z': np.ones((1, 2), 'u1')}, safe=NPG)
    return tests
