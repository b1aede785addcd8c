"""The model card, card.md: a description of a model for people."""

from __future__ import annotations

from engines.manifest import FixedSize, Manifest, ParityCase, TensorSpec

_TOO_TIGHT_LEVELS = 0.01
"""Grey levels (of 255) below which no net in bf16 stays within the limit, so the card does not mention bf16."""
_RESULTS = {"inpaint": "filled.png", "translate": "translated.png", "generate": "generated.png"}
_PARTS = {
    "label": "image=@labels.png",
    "instance": "instance=@instances.png",
    "reference": "reference=@photo.jpg",
    "mask": "mask=@mask.png",
}
"""Form fields of the example request, by the model input that each supplies."""


def card_text(manifest: Manifest, reference: str = "torch FP32") -> str:
    """Return the card in Markdown; every figure comes from the manifest. `reference` names the parity reference."""
    return "\n".join(
        [
            f"# {manifest.key}",
            "",
            f"Task: {manifest.task}. Generator: {manifest.generator}, {_format_options(manifest)}.",
            "",
            "| | |",
            "|---|---|",
            *(f"| {name} | {value} |" for name, value in _card_facts(manifest).items()),
            "",
            "## Call it",
            "",
            "```sh",
            _call(manifest),
            "```",
            "",
            *_int8_section(manifest),
            "## Parity",
            "",
            f"Graphs under ONNX Runtime on a CPU against {reference}, on the output before clamping; peak 1.0.",
            f"An engine under {manifest.parity.bar_db:g} dB is refused.",
            *_fill_levels(manifest),
            "",
            "| graph | inputs | PSNR dB | largest difference |",
            "|---|---|---|---|",
            *map(_parity_row, manifest.parity.cases),
            "",
        ]
    )


def _call(manifest: Manifest) -> str:
    parts = _PARTS | {"image": "image=@photo.jpg" if manifest.task == "inpaint" else "image=@picture.png"}
    sent = [parts[spec.name] for spec in manifest.inputs if spec.name in parts] or ["seed=1"]
    flags = " ".join(f"-F {part}" for part in (f"model={manifest.name}", *sent))
    return f"curl {flags} http://127.0.0.1:8000/v1/{manifest.task} -o {_RESULTS[manifest.task]}"


def _int8_section(manifest: Manifest) -> list[str]:
    made = manifest.quantisation
    if made is None:
        return []
    gate, kept = made.gate, ", ".join(f"`{layer.name}`" for layer in made.kept) or "none"
    return [
        "## INT8",
        "",
        f"{made.int8_layers} convolutions compute in INT8; kept in higher precision: {kept}.",
        f"Calibrated on {made.pictures} pictures of {made.calibration}. On {gate.pictures} others ({gate.engine}):",
        f"PSNR in the holes against FP32 {gate.psnr_db:.1f} dB on average, {gate.worst_psnr_db:.1f} dB at worst;",
        f"LPIPS to the truth {gate.lpips:.4f}, that of FP32 {gate.lpips_fp32:.4f}.",
        "",
    ]


def _fill_levels(manifest: Manifest) -> list[str]:
    if manifest.bf16_levels is None:
        return []
    if manifest.bf16_levels < _TOO_TIGHT_LEVELS:
        return ["The graph itself differs from torch by as much as it may, so a CPU computes in FP32."]
    return [
        f"A CPU computes in bf16 if that changes no fill by more than {manifest.bf16_levels:.2g} of 255 grey levels."
    ]


def _format_options(manifest: Manifest) -> str:
    return ", ".join(f"{name}={value}" for name, value in manifest.options.items())


def _card_facts(manifest: Manifest) -> dict[str, str]:
    return {
        "inputs": "; ".join(map(_describe_tensor, manifest.inputs)),
        "output": _describe_tensor(manifest.output),
        "size": _describe_sizes(manifest),
        "largest batch": str(manifest.max_batch),
        "graph": f"ONNX opset {manifest.opset}, {manifest.precision}, sha256 `{manifest.onnx_sha256}`",
        "checkpoint": f"sha256 `{manifest.checkpoint_sha256}`",
        "licence": manifest.licence,
        "training data": manifest.training_data,
        **{f"quality: {name}": f"{value:g}" for name, value in manifest.quality.items()},
    }


def _describe_tensor(spec: TensorSpec) -> str:
    return f"`{spec.name}` {spec.dtype} {'×'.join(map(str, spec.shape))}"


def _describe_sizes(manifest: Manifest) -> str:
    size = manifest.size
    if isinstance(size, FixedSize) and manifest.task == "generate":
        return f"{size.height}×{size.width}"
    if isinstance(size, FixedSize):
        return f"{size.height}×{size.width} only; other pictures: {size.fit}"
    sides = ", ".join(map(str, size.sides))
    return f"multiples of {size.multiple_of}; served with sides {sides}; other pictures: {size.fit}"


def _parity_row(case: ParityCase) -> str:
    psnr = "identical" if case.psnr_db is None else f"{case.psnr_db:.1f}"
    return f"| {case.backend} | {case.inputs} | {psnr} | {case.max_abs:.2g} |"
