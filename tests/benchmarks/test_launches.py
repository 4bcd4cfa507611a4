"""Counting launches in the text of a compiled program."""

from types import SimpleNamespace

import pytest

from benchmarks import launches

PROGRAM = """HloModule jit_scan

%fused (p: f32[2]) -> f32[2] {
  %p = f32[2]{0} parameter(0)
  ROOT %e = f32[2]{0} exponential(%p)
}

%called (p: f32[2]) -> f32[2] {
  %p = f32[2]{0} parameter(0)
  %k = f32[2]{0} custom-call(%p), custom_call_target="__gpu$xla.gpu.triton"
  ROOT %f = f32[2]{0} fusion(%k), kind=kLoop, calls=%fused
}

%body (state: (s32[], f32[2])) -> (s32[], f32[2]) {
  %state = (s32[], f32[2]{0}) parameter(0)
  %x = f32[2]{0} get-tuple-element(%state), index=1
  %n = s32[] get-tuple-element(%state), index=0
  %d = f32[2]{0} custom-call(%x), custom_call_target="__cublas$lt$matmul"
  %a = f32[2]{0} custom-call(%d), custom_call_target="__cudnn$fmhaSoftmax"
  %c = f32[2]{0} copy(%a)
  %y = f32[2]{0} call(%c), to_apply=%called
  %s = s32[] add(%n, %n)
  ROOT %t = (s32[], f32[2]{0}) tuple(%s, %y)
}

ENTRY %main (p: f32[2]) -> f32[2] {
  %p = f32[2]{0} parameter(0)
  %w = (s32[], f32[2]{0}) while(%p), condition=%cond, body=%body
  ROOT %r = f32[2]{0} get-tuple-element(%w), index=1
}
"""


def counted(text):
    return launches.count(SimpleNamespace(as_text=lambda: text))


def test_the_body_of_the_loop_is_counted_by_kind():
    kinds = {"GEMM", "cuDNN attention", "Pallas", "fusion", "copy", "other"}
    assert counted(PROGRAM) == dict.fromkeys(kinds, 1)
    assert set(launches.KINDS) == kinds


def test_a_program_without_a_loop_is_refused():
    with pytest.raises(
        ValueError, match="program: expected one loop at its top, got 0"
    ):
        counted(PROGRAM.replace("while(%p), condition=%cond, body=%body", "tuple(%p)"))
