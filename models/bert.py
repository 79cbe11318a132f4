"""BERT of transformers: embeddings, attention with a padding mask, post-LayerNorm, tanh pooler.

full is BERT-base (`BertModel(BertConfig())`) on 128 tokens; small is a short BertForSequenceClassification that reads
a digit as 64 intensity tokens. Both subclasses only fix the signature and return plain tensors, so that the names of
their weights stay those of published checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, BertModel

from harness.adapter import Batch, Size
from harness.errors import WeightsError

from . import _checkpoints, _digits, _seeding, _synthetic, _training

SIZES = {
    "small": Size(("trained", "seeded"), ("logits",), labelled="logits", cost=1.3),
    "full": Size(("seeded", "pretrained"), ("last_hidden_state", "pooler_output"), cost=4.0, memory=9.0),
}

PUBLISHED = "bert-base-uncased"
TOKENS = 128
VOCABULARY = 30522
_WIDTH = 48
_ATTENTION = "sdpa"
_STREAM = 71


class DigitBert(BertForSequenceClassification):
    """(N, 64) tokens and mask to (N, 10) logits."""

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """See the class."""
        return super().forward(input_ids, attention_mask=attention_mask).logits


class TextBert(BertModel):
    """(N, 128) tokens and mask to last_hidden_state (N, 128, 768) and pooler_output (N, 768)."""

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """See the class."""
        outputs = super().forward(input_ids, attention_mask=attention_mask)
        return outputs.last_hidden_state, outputs.pooler_output


def build(size: str, weights: str, seed: int) -> nn.Module:
    """BERT in eval mode; `weights` may be a state_dict or safetensors file, or a transformers folder."""
    _checkpoints.check_kind("bert", size, weights, SIZES[size].weights)
    cls = DigitBert if size == "small" else TextBert
    if weights == "pretrained" or Path(weights).is_dir():
        source = PUBLISHED if weights == "pretrained" else weights
        model = _checkpoints.transformers_model(cls, source, attn_implementation=_ATTENTION)
        return _fits(model, size, weights)
    model = _seeding.construct(_small if size == "small" else _full, seed)
    if weights == "seeded":
        return _seeded(model, seed)
    if weights == "trained":
        return _checkpoints.trained(model, "bert")
    state = _checkpoints.read_state(Path(weights))
    return _checkpoints.fill(model, state if size == "small" else _bare(state), weights)


def calibration(size: str, seed: int) -> Iterable[Batch]:
    """Training digits as tokens for small, random tokens for full."""
    if size == "small":
        return _digits.calibration(as_tokens, seed)
    return _synthetic.calibration(_sentences, seed)


def evaluation(size: str, seed: int) -> Iterable[Batch]:
    """The 360 held-out digits for small, random tokens for full."""
    if size == "small":
        return _digits.evaluation(as_tokens)
    return _synthetic.evaluation(_sentences, seed)


def train(seed: int) -> nn.Module:
    """The small model, trained on digits, in eval mode."""
    model = _ordered(_seeding.construct(_small, seed), _seeding.generator(seed, _STREAM))
    return _training.fit(model, _training.classify(as_tokens), seed=seed, epochs=12, lr=3e-3)


def as_tokens(pixels: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """(N, 8, 8) to tokens (N, 64) int64 and mask (N, 64) int64; what follows the last inked pixel is padding."""
    tokens = pixels.flatten(1).long()
    inked_from_here = tokens.flip(1).cumsum(1).flip(1) > 0
    return tokens, inked_from_here.long()


def _sentences(stream: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Random word pieces (the first 1,000 ids are special or unused); one full sentence, the others padded."""
    count = _synthetic.BATCH
    tokens = torch.randint(1000, VOCABULARY, (count, TOKENS), generator=stream)
    lengths = torch.randint(TOKENS // 4, TOKENS, (count, 1), generator=stream)
    lengths[0] = TOKENS
    mask = (torch.arange(TOKENS) < lengths).long()
    return tokens * mask, mask


def _small() -> DigitBert:
    config = BertConfig(
        vocab_size=_digits.LEVELS,
        hidden_size=_WIDTH,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=2 * _WIDTH,
        max_position_embeddings=64,
        type_vocab_size=1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=1 / math.sqrt(_WIDTH),
        num_labels=_digits.CLASSES,
        attn_implementation=_ATTENTION,
    )
    return DigitBert(config)


def _ordered(model: DigitBert, stream: torch.Generator) -> DigitBert:
    """Start the embeddings with what a token sequence hides: which pixels are neighbours, and that levels are ordered.

    Positions become row and column waves in a random basis, levels points on a line. From BERT's own random start the
    same number of steps reaches 70 %, not 96 %.
    """
    side, waves = 8, _WIDTH // 4
    position = torch.arange(side * side)
    frequency = torch.linspace(0.5, 3.0, waves) * math.pi / side
    angles = [(axis + 0.5)[:, None] * frequency for axis in (position // side, position % side)]
    geometry = torch.cat([wave(angle) for angle in angles for wave in (torch.sin, torch.cos)], 1)
    basis = torch.linalg.qr(torch.randn(_WIDTH, _WIDTH, generator=stream))[0]
    line = 1.5 * torch.randn(1, _WIDTH, generator=stream)
    jitter = 0.1 * torch.randn(_digits.LEVELS, _WIDTH, generator=stream)
    embeddings = model.bert.embeddings
    with torch.no_grad():
        embeddings.position_embeddings.weight.copy_(geometry @ basis)
        embeddings.word_embeddings.weight.copy_(torch.linspace(-1, 1, _digits.LEVELS)[:, None] * line + jitter)
        for layer in model.bert.encoder.layer:
            # Flat attention at first: the mean over all pixels passes a gradient to every one of them.
            layer.attention.self.query.weight *= 0.5
    return model


def _full() -> TextBert:
    return TextBert(BertConfig(attn_implementation=_ATTENTION))


def _bare(state: _checkpoints.State) -> _checkpoints.State:
    """The encoder's part of a pre-training checkpoint, under BertModel's names.

    The published file keeps the encoder below `bert.`, heads below `cls.`, and calls LayerNorm's parameters gamma and
    beta; transformers translates that for a folder, and a single file deserves the same.
    """
    encoder = {name.removeprefix("bert."): tensor for name, tensor in state.items() if not name.startswith("cls.")}
    return {
        name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias"): tensor
        for name, tensor in encoder.items()
        if not name.endswith("embeddings.position_ids")
    }


def _fits(model: nn.Module, size: str, source: str) -> nn.Module:
    """A folder brings its own config: refuse one that cannot read the inputs rather than fail in a forward pass."""
    config = model.config
    vocabulary, tokens = (_digits.LEVELS, 64) if size == "small" else (VOCABULARY, TOKENS)
    for name, has, needs in (
        ("vocab_size", config.vocab_size, vocabulary),
        ("max_position_embeddings", config.max_position_embeddings, tokens),
    ):
        if has < needs:
            raise WeightsError(f"{source} does not fit bert/{size}: its {name} is {has}, the inputs need {needs}")
    return model


def _seeded(model: nn.Module, seed: int) -> nn.Module:
    stream = _seeding.generator(seed, _STREAM)
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            # Sharper attention: at gain 1 every head averages all tokens and its output nearly vanishes.
            sharp = name.endswith((".query", ".key"))
            _seeding.fan_in_(module, stream, gain=1.5 if sharp else 1.0)
        elif isinstance(module, nn.LayerNorm):
            _seeding.outlier_gains_(module, stream)
    return model
