"""The table of published inpainting models. No row's address has been tried: this project was written without internet.

Only what the page in `source` or `licence_source` states is filled in. Digests stated by anyone but a file's publisher
are left out. The hosts that GitHub and Hugging Face redirect downloads to are those known when this was written; the
command names a host that is missing here.
"""

from __future__ import annotations

from retouch.zoo.rows import Row

_HUGGING_FACE = (
    "cdn-lfs.huggingface.co",
    "cdn-lfs.hf.co",
    "cdn-lfs-us-1.hf.co",
    "cdn-lfs-eu-1.hf.co",
    "cas-bridge.xethub.hf.co",
)
_GITHUB = ("objects.githubusercontent.com", "release-assets.githubusercontent.com")
_IOPAINT = "https://github.com/Sanster/IOPaint/blob"
_LAMA = "https://github.com/advimman/lama"
_NIPPONJO = "https://github.com/nipponjo/deepfillv2-pytorch"
_CSQIANGWEN = "https://github.com/csqiangwen/DeepFillv2_Pytorch"
_MIGAN = "https://github.com/Picsart-AI-Research/MI-GAN"
_MIGAN_LICENCE = {"licence": "MIT", "licence_source": f"{_MIGAN}/blob/main/LICENSE-WEIGHTS"}


def published_models() -> tuple[Row, ...]:
    """Return the table, in the order it is shown."""
    return (*_lama(), *_migan(), *_deepfill())


def _lama() -> tuple[Row, ...]:
    return (
        Row(
            name="lama-onnx",
            file="lama_fp32.onnx",
            about="big-lama as ONNX of 512×512",
            source="https://huggingface.co/Carve/LaMa-ONNX/commit/a3ee2fca54baebec351b8fa7786154ffa7555aa6",
            url="https://huggingface.co/Carve/LaMa-ONNX/resolve/a3ee2fca54baebec351b8fa7786154ffa7555aa6/lama_fp32.onnx",
            redirect_hosts=_HUGGING_FACE,
            size=208044816,
            sha256="1faef5301d78db7dda502fe59966957ec4b79dd64e16f03ed96913c7a4eb68d6",
            licence="Apache-2.0",
            licence_source="https://huggingface.co/Carve/LaMa-ONNX/tree/main",
            command="import",
        ),
        Row(
            name="big-lama",
            file="big-lama.zip",
            about="the authors' big-lama, a checkpoint of Lightning beside its configuration; their code is Apache-2.0",
            source=_LAMA,
            get_by_hand="save https://disk.yandex.ru/d/ouP6l8VJ0HpMZg in a browser",
            training_data="Places Challenge",
            command="export",
            generator="lama",
        ),
        Row(
            name="big-lama-iopaint",
            file="big-lama.pt",
            about="the TorchScript archive that IOPaint fetches for its model lama",
            source=f"{_IOPAINT}/49e0a1806e3ee67d35f365d2e7acdc9916e0f9fd/iopaint/model/lama.py",
            url="https://github.com/Sanster/models/releases/download/add_big_lama/big-lama.pt",
            redirect_hosts=_GITHUB,
            md5="e3aa4aaa15225a33ec84f9f4bc47e500",
            command="export",
            generator="lama",
        ),
    )


def _migan() -> tuple[Row, ...]:
    return (
        Row(
            name="migan-onnx",
            file="migan_pipeline_v2.onnx",
            about="the authors' ONNX pipeline round MI-GAN of 512×512: bytes in and out, any size",
            source=_MIGAN,
            url="https://huggingface.co/andraniksargsyan/migan/resolve/main/migan_pipeline_v2.onnx",
            redirect_hosts=_HUGGING_FACE,
            training_data="Places2",
            command="import",
            options={"sides": "512", "mask_means": "known", "composite": "inside"},
            **_MIGAN_LICENCE,
        ),
        *(
            Row(
                name=name,
                file=file,
                about=f"the authors' MI-GAN of {side}×{side}",
                source=_MIGAN,
                get_by_hand=f"take {file} from https://drive.google.com/drive/folders/1xNtvN2lto0p5yFKOEEg9RioMjGrYM74w",
                training_data=data,
                command="export",
                generator="migan",
                **_MIGAN_LICENCE,
            )
            for name, file, side, data in (
                ("migan-512", "migan_512_places2.pt", 512, "Places2"),
                ("migan-256", "migan_256_places2.pt", 256, "Places2"),
                ("migan-256-ffhq", "migan_256_ffhq.pt", 256, "FFHQ"),
            )
        ),
        Row(
            name="migan-iopaint",
            file="migan_traced.pt",
            about="the TorchScript archive that IOPaint fetches for its model migan, of 512×512",
            source=f"{_IOPAINT}/a73e2a531f54c693763c61f611f453add42e5c8d/iopaint/model/mi_gan.py",
            url="https://github.com/Sanster/models/releases/download/migan/migan_traced.pt",
            redirect_hosts=_GITHUB,
            md5="76eb3b1a71c400ee3290524f7a11b89c",
            command="export",
            generator="migan",
        ),
    )


def _deepfill() -> tuple[Row, ...]:
    original = "JiahuiYu/generative_inpainting, which is CC BY-NC 4.0"
    return (
        *(
            Row(
                name=f"deepfill-{kind}-{data.lower()}",
                file=f"states_{kind}_{data.lower()}.pth",
                about=f"DeepFillv2, {how} the weights of {original}",
                source=_NIPPONJO,
                get_by_hand=f"save https://drive.google.com/file/d/{drive}/view in a browser",
                training_data=data,
                command="export",
                generator="deepfillv2",
            )
            for kind, how, data, drive in (
                ("pt", "trained on from", "Places2", "1L63oBNVgz7xSb_3hGbUdkYW1IuRgMkCa"),
                ("pt", "trained on from", "CelebAHQ", "17oJ1dJ9O3hkl2pnl8l2PtNVf2WhSDtB7"),
                ("tf", "converted from", "Places2", "1tvdQRmkphJK7FYveNAKSMWC6K09hJoyt"),
                ("tf", "converted from", "CelebAHQ", "1fTQVSKWwWcKYnmeemxKWImhVtFQpESmm"),
            )
        ),
        Row(
            name="deepfill-csqiangwen",
            file="deepfillv2_WGAN_G_epoch40_batchsize4.pth",
            about="DeepFillv2 trained anew by csqiangwen, whose code is MIT",
            source=_CSQIANGWEN,
            get_by_hand="save https://drive.google.com/file/d/1uMghKl883-9hDLhSiI8lRbHCzCmmRwV-/view in a browser",
            training_data="Places365-Standard",
            command="export",
            generator="deepfillv2",
        ),
    )
