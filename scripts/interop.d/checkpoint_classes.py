"""Classes seen in public checkpoints, and what tconv does with a file that has one of them.

By default: "reads": every tensor of the file is there; "refuses": the name is on no list, the file is refused (exit 5).
Under --pickle=inert every tensor of every file here is found, also those inside of the object. classes.py makes an
honest file of each and checks both. Where the package is not installed, its class is stood in for by one of the same
name that is pickled in the same way; "how" says which.
"""
from typing import NamedTuple


class Class(NamedTuple):
    name: str
    how: str  # a function of classes.py that makes the object
    default: str
    seen: str  # where


def all_of(how: str, default: str, seen: str, *names: str) -> list[Class]:
    return [Class(name, how, default, seen) for name in names]


CLASSES = [
    # Python's own
    *all_of("real", "reads", "everywhere", "collections.OrderedDict", "collections.defaultdict", "collections.Counter",
            "builtins.set", "builtins.frozenset", "builtins.complex", "builtins.bytearray", "collections.deque"),
    *all_of("real", "reads", "options and paths of training scripts", "argparse.Namespace", "pathlib.PosixPath",
            "types.SimpleNamespace"),
    *all_of("real", "refuses", "options and paths of training scripts", "datetime.datetime", "datetime.timedelta",
            "datetime.date", "decimal.Decimal", "fractions.Fraction", "uuid.UUID",
            "functools.partial", "builtins.slice", "builtins.range",
            "random.Random", "operator.itemgetter", "logging.Logger", "re.Pattern", "itertools.count"),
    *all_of("old_path", "reads", "options saved under Windows", "pathlib.WindowsPath"),
    # torch
    *all_of("real", "reads", "everywhere", "torch.Size", "torch.device", "torch.dtype", "torch.nn.parameter.Parameter"),
    *all_of("real", "refuses", "whole optimisers and schedulers", "torch.optim.adam.Adam", "torch.optim.adamw.AdamW",
            "torch.optim.sgd.SGD",
            "torch.optim.lr_scheduler.StepLR", "torch.optim.lr_scheduler.LambdaLR"),
    *all_of("module", "refuses", "whole modules", "torch.nn.modules.linear.Linear", "torch.nn.modules.conv.Conv2d",
            "torch.nn.modules.batchnorm.BatchNorm2d", "torch.nn.modules.normalization.LayerNorm",
            "torch.nn.modules.sparse.Embedding",
            "torch.nn.modules.container.Sequential", "torch.nn.modules.container.ModuleList",
            "torch.nn.modules.container.ModuleDict",
            "torch.nn.modules.container.ParameterList", "torch.nn.modules.activation.MultiheadAttention",
            "torch.nn.modules.rnn.LSTM"),
    *all_of("graph_module", "refuses", "torch.fx", "torch.fx.graph_module.reduce_graph_module"),
    *all_of("real", "refuses", "torch", "torch.Generator"),
    *all_of("stub_function", "refuses", "torch.multiprocessing", "torch.multiprocessing.reductions.rebuild_tensor"),
    # numpy, pandas, jax, scikit-learn, scipy
    *all_of("real", "reads", "random states and metrics", "numpy.ndarray", "numpy.float64", "numpy.int64",
            "numpy.bool_"),
    *all_of("real", "refuses", "random states", "numpy.random.mtrand.RandomState", "numpy.random._generator.Generator"),
    *all_of("real", "refuses", "tables beside a model", "pandas.DataFrame", "pandas.Series", "pandas.Index",
            "pandas.Timestamp"),
    *all_of("real", "refuses", "Flax and Haiku", "jax.Array"),
    *all_of("stub", "refuses", "joblib dumps", "sklearn.linear_model._logistic.LogisticRegression",
            "sklearn.preprocessing._data.StandardScaler",
            "sklearn.ensemble._forest.RandomForestClassifier", "sklearn.pipeline.Pipeline",
            "sklearn.decomposition._pca.PCA",
            "sklearn.preprocessing._label.LabelEncoder", "sklearn.cluster._kmeans.KMeans", "sklearn.svm._classes.SVC"),
    *all_of("stub", "refuses", "word vectors and sparse data", "scipy.sparse._csr.csr_matrix",
            "gensim.models.keyedvectors.KeyedVectors",
            "xgboost.core.Booster"),
    # configuration
    *all_of("stub_dict", "refuses", "Lightning", "easydict.EasyDict", "addict.addict.Dict", "munch.Munch",
            "box.box.Box", "yacs.config.CfgNode",
            "mmcv.utils.config.ConfigDict", "mmengine.config.config.ConfigDict", "detectron2.config.config.CfgNode",
            "ml_collections.config_dict.config_dict.ConfigDict", "attrdict.dictionary.AttrDict", "dotmap.DotMap",
            "transformers.utils.generic.ModelOutput"),
    *all_of("stub_dict", "reads", "Lightning's hyperparameters", "pytorch_lightning.utilities.parsing.AttributeDict",
            "lightning.pytorch.utilities.parsing.AttributeDict", "lightning_fabric.utilities.data.AttributeDict",
            "lightning.fabric.utilities.data.AttributeDict"),
    *all_of("stub", "refuses", "hydra", "omegaconf.dictconfig.DictConfig", "omegaconf.listconfig.ListConfig",
            "omegaconf.base.ContainerMetadata",
            "omegaconf.nodes.AnyNode", "omegaconf.base.Metadata", "omegaconf.nodes.StringNode"),
    *all_of("stub_function", "refuses", "typing names in omegaconf's files", "typing.Any", "typing.Dict"),
    # training frameworks
    *all_of("stub", "refuses", "Lightning", "pytorch_lightning.callbacks.model_checkpoint.ModelCheckpoint",
            "pytorch_lightning.callbacks.early_stopping.EarlyStopping", "pytorch_lightning.trainer.states.TrainerState",
            "lightning.pytorch.callbacks.model_checkpoint.ModelCheckpoint"),
    *all_of("stub_function", "refuses", "keys of Lightning's callbacks",
            "pytorch_lightning.callbacks.lr_monitor.LearningRateMonitor",
            "lightning.pytorch.core.saving._load_state"),
    *all_of("stub", "refuses", "training_args.bin", "transformers.training_args.TrainingArguments",
            "transformers.training_args_seq2seq.Seq2SeqTrainingArguments",
            "trl.trainer.sft_config.SFTConfig", "transformers.deepspeed.HfDeepSpeedConfig",
            "accelerate.state.PartialState"),
    *all_of("stub_enum", "refuses", "training_args.bin", "transformers.trainer_utils.IntervalStrategy",
            "transformers.trainer_utils.SchedulerType",
            "transformers.training_args.OptimizerNames", "transformers.trainer_utils.HubStrategy",
            "accelerate.utils.dataclasses.DistributedType",
            "pytorch_lightning.trainer.states.TrainerFn"),
    *all_of("stub", "refuses", "fairseq", "fairseq.data.dictionary.Dictionary",
            "fairseq.tasks.translation.TranslationConfig",
            "fairseq.meters.AverageMeter", "fairseq.logging.meters.StopwatchMeter"),
    *all_of("stub", "reads", "DeepSpeed", "deepspeed.runtime.fp16.loss_scaler.LossScaler",
            "deepspeed.utils.tensor_fragment.fragment_address"),
    *all_of("stub", "refuses", "DeepSpeed and Megatron", "deepspeed.runtime.zero.config.ZeroStageEnum",
            "megatron.fp16.loss_scaler.DynamicLossScaler",
            "megatron.core.transformer.transformer_config.TransformerConfig"),
    *all_of("stub", "refuses", "other trainers", "apex.amp._amp_state.AmpState", "ignite.engine.events.State",
            "composer.core.state.State",
            "catalyst.core.runner.RunnerState", "ray.tune.result.Result",
            "stable_baselines3.common.type_aliases.Schedule",
            "mmengine.logging.history_buffer.HistoryBuffer", "allennlp.data.vocabulary.Vocabulary",
            "espnet.utils.training.Reporter",
            "nemo.core.config.ModelPTConfig", "speechbrain.dataio.encoder.CategoricalEncoder",
            "torchmetrics.metric.Metric"),
    # models pickled whole
    *all_of("stub_module", "refuses", "YOLO", "models.yolo.Model", "models.yolo.DetectionModel", "models.common.Conv",
            "ultralytics.nn.tasks.DetectionModel",
            "ultralytics.nn.tasks.SegmentationModel", "ultralytics.nn.modules.conv.Conv",
            "ultralytics.nn.tasks.WorldModel"),
    *all_of("stub_module", "refuses", "whole models", "torchvision.models.resnet.ResNet",
            "timm.models.vision_transformer.VisionTransformer",
            "transformers.models.bert.modeling_bert.BertModel", "segmentation_models_pytorch.decoders.unet.model.Unet",
            "efficientnet_pytorch.model.EfficientNet", "facenet_pytorch.models.inception_resnet_v1.InceptionResnetV1",
            "__main__.Net",
            "model.Generator", "src.models.transformer.Transformer", "basicsr.archs.rrdbnet_arch.RRDBNet"),
    # data
    *all_of("stub", "refuses", "graphs", "torch_geometric.data.data.Data", "torch_geometric.data.data.DataEdgeAttr",
            "torch_geometric.data.storage.GlobalStorage", "torch_sparse.tensor.SparseTensor",
            "dgl.heterograph.DGLGraph"),
    *all_of("stub", "refuses", "data sets and structures", "detectron2.structures.boxes.Boxes",
            "detectron2.structures.instances.Instances",
            "monai.data.meta_tensor.MetaTensor", "torchtext.vocab.Vocab", "torchtext.data.field.Field",
            "PIL.Image.Image",
            "tokenizers.Tokenizer", "spacy.vocab.Vocab", "rdkit.Chem.rdchem.Mol", "networkx.classes.graph.Graph",
            "sentencepiece.SentencePieceProcessor", "torch_utils.persistence._reconstruct_persistent_obj",
            "dnnlib.util.EasyDict"),
    *all_of("stub_list", "refuses", "lists of a kind", "fastai.basics.L", "fastcore.foundation.L",
            "tensordict.TensorDictParams",
            "torch.nn.utils.rnn.PackedSequence"),
]  # fmt: skip
