"""The model card, card.md: a description of a model for people."""

from __future__ import annotations

from engines.manifest import FixedSize, Manifest, ParityCase, TensorSpec

_CALLS = {
    "inpaint": "-F image=@photo.jpg -F mask=@mask.png http://127.0.0.1:8000/v1/inpaint -o filled.png",
    "translate": "-F image=@picture.png http://127.0.0.1:8000/v1/translate -o translated.png",
    "generate": "-F seed=1 http://127.0.0.1:8000/v1/generate -o generated.png",
}


def card_text(manifest: Manifest) -> str:
    """Write the card in Markdown; every figure comes from the manifest."""
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
            f"curl -F model={manifest.name} {_CALLS[manifest.task]}",
            "```",
            "",
            *_int8_section(manifest),
            "## Parity",
            "",
            "Graphs under ONNX Runtime on a CPU against torch FP32, on the output before clamping; peak 1.0.",
            f"An engine under {manifest.parity.bar_db:g} dB is refused.",
            "",
            "| graph | inputs | PSNR dB | largest difference |",
            "|---|---|---|---|",
            *map(_parity_row, manifest.parity.cases),
            "",
        ]
    )


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
    if isinstance(size, FixedSize):
        return f"{size.height}×{size.width} only; other pictures: {size.fit}"
    sides = ", ".join(map(str, size.sides))
    return f"multiples of {size.multiple_of}; served with sides {sides}; other pictures: {size.fit}"


def _parity_row(case: ParityCase) -> str:
    psnr = "identical" if case.psnr_db is None else f"{case.psnr_db:.1f}"
    return f"| {case.backend} | {case.inputs} | {psnr} | {case.max_abs:.2g} |"
