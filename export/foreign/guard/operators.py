"""The operators that a foreign graph may use: those of ai.onnx without random numbers, text or sequences."""

from __future__ import annotations

MIN_OPSET = 11
"""Older opsets lack Round, which wrapping.py adds, and give Pad its sizes as an attribute (SIZE_OPERANDS)."""
MAX_OPSET = 22
MAX_IR_VERSION = 11
"""The newest version of the file format; runtimes of the last two years read it."""

_NAMES = """
Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh AveragePool BatchNormalization BitShift BitwiseAnd
BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil Celu CenterCropPad Clip Col2Im Compress Concat Constant
ConstantOfShape Conv ConvTranspose Cos Cosh CumSum DFT DepthToSpace Det Div Einsum Elu Equal Erf Exp Expand
EyeLike Flatten Floor GRU Gather GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalLpPool
GlobalMaxPool Greater GreaterOrEqual GridSample GroupNormalization HardSigmoid HardSwish Hardmax Identity If
InstanceNormalization IsInf IsNaN LRN LSTM LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax Loop
LpNormalization LpPool MatMul Max MaxPool MaxUnpool Mean MeanVarianceNormalization Min Mish Mod Mul Neg
NonZero Not OneHot Or PRelu Pad Pow RNN Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp
ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Resize ReverseSequence
RoiAlign Round ScatterElements ScatterND Selu Shape Shrink Sigmoid Sign Sin Sinh Size Slice Softmax Softplus
Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum Tan Tanh ThresholdedRelu Tile TopK Transpose Trilu Unique
Unsqueeze Where Xor
"""
OPERATORS = frozenset(_NAMES.split())

SIZE_OPERANDS = {"ConstantOfShape": (0,), "Expand": (1,), "Tile": (1,), "Resize": (2, 3), "Pad": (1,)}
"""Operators whose output size depends on the values of some inputs, and the positions of those inputs."""

SIZE_ATTRIBUTES = {
    *("pads", "kernel_shape", "strides", "dilations", "output_shape", "output_padding"),
    *("output_height", "output_width", "blocksize", "hidden_size", "num_outputs"),
}
"""Attributes that can make an output large."""
