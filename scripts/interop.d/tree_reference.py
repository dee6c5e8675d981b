"""tconv.tree: one metadata key that lets  .pt -> safetensors -> .pt  rebuild the object torch.load(weights_only=True) had.

  {"v":1,"root":NODE}      compact JSON, UTF-8, members of objects in the dict's order
  null true false          None, bool
  12   0.1   "x"           int (a token of digits only, within 64 bits), float (has . or e; shortest text that reads back), str
  {"k":NODE,...}           dict whose keys are all str
  []                       a tensor; its name in the file is its path: keys and indices joined with dots ("tensor" for a bare one)
  ["t",NAME,OPT]           a tensor; NAME null = the path; OPT {"g":true} requires_grad, {"v":[BASE,offset,[strides]]} shares BASE's storage,
                           {"k":[strides]} not contiguous (a writer may ignore k), {"a":{..}} attributes.  Trailing members may be left out
  ["p",NAME,OPT]           nn.Parameter, requires_grad true unless {"g":false}
  ["s",NAME,LAYOUT,C]      sparse group NAME.indices .values .shape (coo; C = coalesced) or .crow_indices/.ccol_indices .col_indices/.row_indices .values .shape
  ["q",NAME,SCHEME,..]     quantised: per_tensor_affine scale zero_point, or per_channel_affine axis with NAME.scales NAME.zero_points; ["n",NAME] numpy array, ["N",NAME] numpy scalar
  ["l",..] ["u",..] ["S",..]   list, tuple, set              ["d",K,V,K,V,..]  dict with other keys (K is a NODE without tensors)
  ["O",MAP,{attr}] ["C",MAP] ["D",FACTORY,MAP]               OrderedDict (attributes: _metadata), Counter, defaultdict; MAP = {..} or ["d",..]
  ["i","digits"] ["f","inf|-inf|nan|nan:HEX16"] ["c",re,im] ["b",base64] ["B",base64] ["x",base64]   int past 64 bits, float, complex, bytes, bytearray, str with lone surrogates (UTF-8, surrogatepass)
  ["dt","float16"] ["z",2,3] ["dv","cuda:0"] ["ly","strided"]   torch.dtype, Size, device, layout
Names: where two paths have one name ({"a.b":x,"a":{"b":y}}, 1 and "1") the later one gets NAME~1, ~2, .. and says so. A key that is neither str nor int counts as ?N, N its place in the dict.
Not kept: which containers are one object, unreferenced parts of a storage, a device other than cpu as a tensor's place.

An oracle for the tests: encode makes the tree of an object that torch loaded, decode the object of a tree.
"""
import json, math, re, struct, base64, collections
MAX_NODES, MAX_DEPTH, MAX_TEXT = (4000000, 1000, 64 << 20)

class TreeError(ValueError):
    pass
b64 = lambda b: base64.b64encode(b).decode()
FACTORIES = {'list': list, 'dict': dict, 'int': int, 'float': float, 'str': str, 'set': set, 'tuple': tuple, 'bool': bool}
SPARSE = {'coo': ('indices', 'values'), 'csr': ('crow_indices', 'col_indices', 'values'), 'csc': ('ccol_indices', 'row_indices', 'values'), 'bsr': ('crow_indices', 'col_indices', 'values'), 'bsc': ('ccol_indices', 'row_indices', 'values')}

def dense(shape, k):
    """strides worth keeping: no element shared, at most half of the extent empty"""
    p = sorted(((x, n) for x, n in zip(k, shape) if n > 1))
    num = math.prod(shape)
    return num > 0 and all((x for x, _ in p)) and all((x >= y * n for (y, n), (x, _) in zip(p, p[1:]))) and (1 + sum(((n - 1) * x for x, n in p)) <= 2 * num)

def encode(obj):
    """-> ({name: contiguous tensor}, tree text)"""
    try:
        return _encode(obj)
    except RecursionError:
        raise TreeError('too deep, or a container holds itself')

def _encode(obj):
    import torch, numpy as np
    flat, used, nodes, bases, later, pend = ({}, set(), [0], {}, [], [])
    groups = collections.defaultdict(list)

    def scan(o, d=0):
        if d > MAX_DEPTH:
            raise TreeError('too deep, or a container holds itself')
        if isinstance(o, torch.Tensor):
            if o.layout == torch.strided and (not o.is_quantized) and o.numel() and (not o.is_conj()) and (not o.is_neg()):
                groups[o.untyped_storage().data_ptr()].append(o)
            return
        if isinstance(o, dict):
            for k, v in o.items():
                scan(k, d + 1)
                scan(v, d + 1)
            if isinstance(o, collections.OrderedDict):
                scan(o.__dict__, d + 1)
        elif isinstance(o, (list, tuple, set)):
            nodes[0] += len(o)
            if nodes[0] > MAX_NODES:
                raise TreeError('too many nodes')
            for v in o:
                scan(v, d + 1)
    scan(obj)
    nodes[0] = 0
    for ptr, ts in groups.items():
        if len(ts) > 1:
            end = lambda t: t.storage_offset() + sum(((n - 1) * s for n, s in zip(t.shape, t.stride()))) + 1
            lo, hi = (min((t.storage_offset() for t in ts)), max(map(end, ts)))
            b = [t for t in ts if t.is_contiguous() and t.storage_offset() == lo and (end(t) == hi) and (t.dtype == ts[0].dtype)]
            if b:
                bases[ptr] = [b[0], None]

    def take(path):
        n = '.'.join(path) if path else 'tensor'
        m, i = (n, 0)
        while m in used:
            i += 1
            m = '%s~%d' % (n, i)
        used.add(m)
        return (m, None if m == n else m)

    def trim(*a):
        a = list(a)
        while len(a) > 1 and (a[-1] is None or a[-1] == {}):
            a.pop()
        return a

    def attrs(t):
        return {k: v for k, v in t.__dict__.items()} if getattr(t, '__dict__', None) else {}

    def tensor(t, path):
        name, given = take(path)
        opt = {}
        if t.layout != torch.strided:
            lay = str(t.layout).split('_')[1]
            t0 = t.detach()
            get = (lambda p: getattr(t0, '_' + p)()) if lay == 'coo' else lambda p: getattr(t0, p)()
            for p in SPARSE[lay]:
                flat['%s.%s' % (name, p)] = get(p).contiguous()
            flat[name + '.shape'] = torch.tensor(t.shape, dtype=torch.int64)
            return ['s', given, lay] + ([t.is_coalesced()] if lay == 'coo' else [])
        if t.is_quantized:
            flat[name] = t.int_repr().contiguous()
            sch = str(t.qscheme()).split('.')[1]
            if sch == 'per_tensor_affine':
                return ['q', given, sch, t.q_scale(), t.q_zero_point(), str(t.dtype).split('.')[1]]
            flat[name + '.scales'], flat[name + '.zero_points'] = (t.q_per_channel_scales().contiguous(), t.q_per_channel_zero_points().contiguous())
            return ['q', given, sch, t.q_per_channel_axis(), str(t.dtype).split('.')[1]]
        flat[name] = t.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
        par = isinstance(t, torch.nn.Parameter)
        g = bases.get(t.untyped_storage().data_ptr()) if t.numel() and (not t.is_conj()) and (not t.is_neg()) else None
        if g and t is g[0] and (g[1] is None):
            g[1] = name
        elif g and t.dtype == g[0].dtype:
            later.append((opt, g, t.storage_offset() - g[0].storage_offset(), list(t.stride())))
        elif not t.is_contiguous() and dense(t.shape, t.stride()):
            opt['k'] = list(t.stride())
        if t.requires_grad != par:
            opt['g'] = t.requires_grad
        a = attrs(t)
        if a:
            opt['a'] = {k: enc(v, path + (k,), 1) for k, v in a.items()}
        node = ['p' if par else 't', given, opt]
        pend.append(node)
        return node

    def real(x):
        if x != x:
            h = struct.pack('>d', x).hex()
            return ['f', 'nan' if h == '7ff8000000000000' else 'nan:' + h]
        return ['f', 'inf' if x > 0 else '-inf'] if math.isinf(x) else x

    def key(k):
        if isinstance(k, torch.Tensor):
            raise TreeError('a tensor as a key')
        return enc(k, (), 1)

    def mapping(o, path, d):
        if all((type(k) is str and (not re.search('[\ud800-\udfff]', k)) for k in o)):
            return {k: enc(v, path + (k,), d + 1) for k, v in o.items()}
        r = ['d']
        for i, (k, v) in enumerate(o.items()):
            r += [key(k), enc(v, path + (k.encode('utf-8', 'replace').decode() if type(k) is str else str(k) if type(k) is int else '?%d' % i,), d + 1)]
        return r

    def enc(o, path, d):
        nodes[0] += 1
        if nodes[0] > MAX_NODES:
            raise TreeError('too many nodes')
        if d > MAX_DEPTH:
            raise TreeError('too deep')
        t = type(o)
        many = lambda tag, it: [tag] + [enc(v, path + (str(i),), d + 1) for i, v in enumerate(it)]
        if o is None or t is bool:
            return o
        if t is int:
            return o if -2 ** 63 <= o < 2 ** 63 else ['i', str(o)]
        if t is float:
            return real(o)
        if t is str:
            return ['x', b64(o.encode('utf-8', 'surrogatepass'))] if re.search('[\ud800-\udfff]', o) else o
        if isinstance(o, torch.Tensor):
            if type(o) not in (torch.Tensor, torch.nn.Parameter):
                raise TreeError('tensor class %s' % type(o).__name__)
            return tensor(o, path)
        if t is dict:
            return mapping(o, path, d)
        if t is collections.OrderedDict:
            r = ['O', mapping(o, path, d)]
            return r + ([{k: enc(v, path + (k,), d + 1) for k, v in o.__dict__.items()}] if o.__dict__ else [])
        if t is collections.Counter:
            return ['C', mapping(o, path, d)]
        if t is collections.defaultdict:
            f = o.default_factory
            n = None if f is None else {v: k for k, v in FACTORIES.items()}.get(f)
            if f is not None and n is None:
                raise TreeError('default factory')
            return ['D', n, mapping(o, path, d)]
        if t is torch.Size:
            return ['z'] + list(o)
        if t is list:
            return many('l', o)
        if t is tuple:
            return many('u', o)
        if t is set:
            return many('S', sorted(o, key=repr))
        if t is bytes:
            return ['b', b64(o)]
        if t is bytearray:
            return ['B', b64(bytes(o))]
        if t is complex:
            return ['c', real(o.real), real(o.imag)]
        if t is torch.dtype:
            return ['dt', str(o).split('.')[1]]
        if t is torch.device:
            return ['dv', str(o)]
        if t is torch.layout:
            return ['ly', str(o).split('.')[1]]
        if isinstance(o, (np.ndarray, np.generic)):
            name, given = take(path)
            flat[name] = torch.from_numpy(np.ascontiguousarray(o).copy()).reshape(o.shape)
            return trim('n' if isinstance(o, np.ndarray) else 'N', given)
        raise TreeError('no place for a %s.%s' % (t.__module__, t.__name__))
    root = enc(obj, (), 0)
    for opt, g, off, st in later:
        if g[1] is not None:
            opt['v'] = [g[1], off, st]
    for n in pend:
        while n and (n[-1] is None or n[-1] == {}) and (len(n) > 1):
            n.pop()
        if n == ['t']:
            n.clear()
    text = json.dumps({'v': 1, 'root': root}, separators=(',', ':'), ensure_ascii=False)
    if len(text.encode()) > MAX_TEXT:
        raise TreeError('tree text over the limit')
    return (flat, text)

def parse(text):
    """the JSON with its own rules: no duplicate member, no NaN, integers within 64 bits, depth bounded before anything recurses"""
    if len(text.encode('utf-8', 'surrogatepass')) > MAX_TEXT:
        raise TreeError('tree text over the limit')
    depth = most = n = 0
    for m in re.finditer('"(?:[^"\\\\]|\\\\.)*"|[\\[{]|[\\]}]|,', text):
        c = m.group()[0]
        depth += (c in '[{') - (c in ']}')
        most = max(most, depth)
        n += 1
    if most > 2 * MAX_DEPTH + 4:
        raise TreeError('too deep')
    if n > 4 * MAX_NODES:
        raise TreeError('too many nodes')

    def pairs(p):
        d = dict(p)
        if len(d) != len(p):
            raise TreeError('duplicate member')
        return d

    def integer(t):
        if len(t) > 20 or t == '-0' or (not -2 ** 63 <= int(t) < 2 ** 63):
            raise TreeError('integer')
        return int(t)

    def no(t):
        raise TreeError('constant ' + t)
    try:
        j = json.loads(text, object_pairs_hook=pairs, parse_int=integer, parse_constant=no)
    except TreeError:
        raise
    except (ValueError, RecursionError) as e:
        raise TreeError('no JSON: %s' % e)
    if type(j) is not dict or set(j) != {'v', 'root'}:
        raise TreeError('members')
    if type(j['v']) is not int or j['v'] != 1:
        raise TreeError('version')
    return j['root']

def decode(flat, text):
    """-> the object. Every tensor of flat must be used, once"""
    import torch, numpy as np
    left, count = (dict(flat), [0])

    def need(c, why):
        if not c:
            raise TreeError(why)

    def is_int(x):
        return type(x) is int

    def grab(n):
        need(n in left, 'no tensor %r, or used twice' % n)
        return left.pop(n)

    def un64(x):
        need(type(x) is str, 'base64')
        try:
            return base64.b64decode(x, validate=True)
        except ValueError:
            raise TreeError('base64')

    def real(x):
        if type(x) is float:
            need(math.isfinite(x), 'float')
            return x
        need(type(x) is list and len(x) == 2 and (x[0] == 'f') and (type(x[1]) is str), 'float')
        m = re.fullmatch('(-?inf)|nan(?::([0-9a-f]{16}))?', x[1])
        need(m, 'float')
        if m[1]:
            return float(m[1])
        v = struct.unpack('>d', bytes.fromhex(m[2] or '7ff8000000000000'))[0]
        need(v != v, 'nan')
        return v

    def name(x, path):
        need(x is None or (type(x) is str and x), 'name')
        return x if x is not None else '.'.join(path) if path else 'tensor'
    pending = []

    def tensor(n, path, d):
        need(len(n) <= 3, 'tensor')
        nm = name(n[1] if len(n) > 1 else None, path)
        opt = n[2] if len(n) > 2 else {}
        need(type(opt) is dict and set(opt) <= set('gvka'), 'options')
        t = grab(nm)
        par = n[0] == 'p'
        g = opt.get('g', par)
        need(type(g) is bool, 'g')
        if 'v' in opt:
            v = opt['v']
            need(type(v) is list and len(v) == 3 and (type(v[0]) is str) and is_int(v[1]) and (type(v[2]) is list) and all(map(is_int, v[2])) and (len(v[2]) == t.dim()), 'view')
            b = flat.get(v[0])
            need(b is not None and v[0] != nm and (b.dtype == t.dtype), 'view of what')
            last = v[1] + sum(((s - 1) * x for s, x in zip(t.shape, v[2])))
            need(v[1] >= 0 and all((0 <= x < 2 ** 62 for x in v[2])) and (last < b.numel()), 'view past its base')
            w = torch.as_strided(b, t.shape, v[2], v[1])
            same = torch.equal(w.contiguous().reshape(-1).view(torch.uint8), t.reshape(-1).view(torch.uint8))
            t = w if same else t
        elif 'k' in opt:
            k = opt['k']
            need(type(k) is list and len(k) == t.dim() and all((is_int(x) and 0 <= x for x in k)), 'strides')
            if dense(t.shape, k):
                w = torch.empty_strided(t.shape, k, dtype=t.dtype)
                w.copy_(t)
                t = w
        if par:
            t = torch.nn.Parameter(t, requires_grad=g)
        else:
            t = t.detach()
            if g:
                need(t.is_floating_point() or t.is_complex(), 'requires_grad')
                t.requires_grad_(True)
        if 'a' in opt:
            need(type(opt['a']) is dict, 'attributes')
            for k, x in opt['a'].items():
                need(re.fullmatch('_?[A-Za-z][A-Za-z0-9_]*', k), 'attribute name')
                t.__dict__[k] = dec(x, path + (k,), d + 1)
        return t

    def mapping(n, path, d):
        if type(n) is dict:
            return [(k, dec(v, path + (k,), d + 1)) for k, v in n.items()]
        need(type(n) is list and n and (n[0] == 'd') and (len(n) % 2 == 1), 'map')
        out, seen = ([], set())
        for i in range(1, len(n), 2):
            k = dec(n[i], ('?key',), d + 1)
            try:
                dup = k in seen
                seen.add(k)
            except TypeError:
                raise TreeError('key')
            need(not dup, 'key twice')
            out.append((k, dec(n[i + 1], path + (k.encode('utf-8', 'replace').decode() if type(k) is str else str(k) if type(k) is int else '?%d' % (i // 2),), d + 1)))
        return out

    def dec(n, path, d):
        count[0] += 1
        need(count[0] <= MAX_NODES, 'too many nodes')
        need(d <= MAX_DEPTH, 'too deep')
        T = type(n)
        if n is None or T in (bool, int, str):
            return n
        if T is float:
            return real(n)
        if T is dict:
            return dict(mapping(n, path, d))
        if not n:
            need(path != ('?key',), 'tensor as a key')
            return tensor(['t'], path, d)
        need(type(n[0]) is str, 'tag')
        g, a = (n[0], n[1:])
        L = len(a)
        each = lambda: [dec(v, path + (str(i),), d + 1) for i, v in enumerate(a)]
        if g in ('t', 'p', 's', 'q', 'n', 'N'):
            need(path[:1] != ('?key',), 'tensor as a key')
        if g in ('t', 'p'):
            return tensor(n, path, d)
        if g == 'l':
            return each()
        if g == 'u':
            return tuple(each())
        if g == 'S':
            e = each()
            try:
                s = set(e)
            except TypeError:
                raise TreeError('set member')
            need(len(s) == len(e), 'set member twice')
            return s
        if g == 'd':
            return dict(mapping(n, path, d))
        if g == 'O':
            need(1 <= L <= 2, 'O')
            o = collections.OrderedDict(mapping(a[0], path, d))
            if L == 2:
                need(type(a[1]) is dict and all((re.fullmatch('_?[A-Za-z][A-Za-z0-9_]*', k) for k in a[1])), 'attributes')
                o.__dict__.update({k: dec(v, path + (k,), d + 1) for k, v in a[1].items()})
            return o
        if g == 'C':
            need(L == 1, 'C')
            p = mapping(a[0], path, d)
            need(all((type(v) is int for _, v in p)), 'C')
            return collections.Counter(dict(p))
        if g == 'D':
            need(L == 2 and (a[0] is None or a[0] in FACTORIES), 'D')
            return collections.defaultdict(None if a[0] is None else FACTORIES[a[0]], mapping(a[1], path, d))
        if g == 'i':
            need(L == 1 and type(a[0]) is str and (len(a[0]) <= 620) and re.fullmatch('-?[1-9][0-9]*', a[0]) and (not -2 ** 63 <= int(a[0]) < 2 ** 63), 'i')
            return int(a[0])
        if g == 'f':
            return real(n)
        if g == 'c':
            need(L == 2, 'c')
            return complex(real(a[0]), real(a[1]))
        if g == 'b':
            need(L == 1, 'b')
            return un64(a[0])
        if g == 'B':
            need(L == 1, 'B')
            return bytearray(un64(a[0]))
        if g == 'x':
            need(L == 1, 'x')
            try:
                return un64(a[0]).decode('utf-8', 'surrogatepass')
            except UnicodeDecodeError:
                raise TreeError('x')
        if g == 'dt':
            need(L == 1 and type(a[0]) is str and re.fullmatch('[a-z0-9_]+', a[0]) and (type(getattr(torch, a[0], None)) is torch.dtype), 'dtype')
            return getattr(torch, a[0])
        if g == 'ly':
            need(L == 1 and a[0] in ('strided', 'sparse_coo', 'sparse_csr', 'sparse_csc', 'sparse_bsr', 'sparse_bsc'), 'layout')
            return getattr(torch, a[0])
        if g == 'z':
            need(all((is_int(x) and x >= 0 for x in a)) and L <= 64, 'Size')
            return torch.Size(a)
        if g == 'dv':
            need(L == 1 and type(a[0]) is str and re.fullmatch('(cpu|cuda|mps|xpu|meta|hpu|xla|npu)(:[0-9]{1,3})?', a[0]), 'device')
            return torch.device(a[0])
        if g in ('n', 'N'):
            need(L <= 1, 'numpy')
            v = grab(name(a[0] if a else None, path)).numpy()
            need(g == 'n' or v.ndim == 0, 'scalar')
            return v.copy() if g == 'n' else v[()]
        if g == 's':
            need(L >= 2 and a[1] in SPARSE and (L == (3 if a[1] == 'coo' else 2)), 'sparse')
            nm = name(a[0], path)
            p = [grab('%s.%s' % (nm, x)) for x in SPARSE[a[1]]]
            sh = grab(nm + '.shape')
            need(sh.dtype == torch.int64 and sh.dim() == 1, 'shape')
            try:
                return torch.sparse_coo_tensor(p[0], p[1], torch.Size(sh.tolist()), is_coalesced=a[2], check_invariants=True) if a[1] == 'coo' else getattr(torch, 'sparse_%s_tensor' % a[1])(p[0], p[1], p[2], tuple(sh.tolist()), check_invariants=True)
            except (RuntimeError, TypeError) as e:
                raise TreeError('sparse: %s' % e)
        if g == 'q':
            need(L >= 2 and a[1] in ('per_tensor_affine', 'per_channel_affine', 'per_channel_affine_float_qparams'), 'scheme')
            nm = name(a[0], path)
            v = grab(nm)
            if a[1] == 'per_tensor_affine':
                need(L == 5 and is_int(a[3]), 'q')
                return torch._make_per_tensor_quantized_tensor(v, real(a[2]), a[3])
            need(L == 4 and is_int(a[2]) and (0 <= a[2] < v.dim()), 'q')
            return torch._make_per_channel_quantized_tensor(v, grab(nm + '.scales'), grab(nm + '.zero_points'), a[2])
        raise TreeError('tag %r' % g)
    try:
        o = dec(parse(text), (), 0)
    except RecursionError:
        raise TreeError('too deep')
    need(not left, 'tensors that are not in the tree: %s' % sorted(left)[:3])
    return o
