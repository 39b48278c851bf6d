"""The CPU kernel's arm64 form, run in an emulator: compiled here, linked with a small C program, executed by qemu."""

import shutil
import subprocess

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from elvis.transport import cpu, reference

COMPILER, EMULATOR = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64")
pytestmark = [
    pytest.mark.skipif(cpu.available() is not None, reason=str(cpu.available())),
    pytest.mark.skipif(
        not (COMPILER and EMULATOR), reason="needs aarch64-linux-gnu-gcc and qemu-aarch64 (apt: qemu-user)"
    ),
]

DRIVER = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef int64_t i64;
typedef struct { void *vectors, *mask, *gain; i64 places, channels; double steepness, offset;
                 void *word, *panels, *scaled, *live, *place, *count, *refused; } Packing;
typedef struct { i64 query_step, query_places, query_room; void *count, *place, *scaled, *live, *panels;
                 i64 places; void *vectors, *mask, *gain; i64 channels, rounds;
                 double steepness, shift, half, corner, dust; float *rows, *columns; } Match;
void pack(Packing *), match(Match *, void **, i64, i64);
static void *room(i64 bytes) { return aligned_alloc(64, (bytes + 127) / 64 * 64); }
static void *input(i64 bytes) { void *p = room(bytes); if (fread(p, 1, bytes, stdin) != bytes) exit(3); return p; }
int main(void) {
  i64 *n = input(7 * 8);  /* pairs, M, N, D, rounds, room of the query, bytes of a stored channel */
  double *s = input(5 * 8);  /* steepness, shift, half, corner, dust */
  i64 B = n[0], M = n[1], N = n[2], D = n[3], R = n[5], many = (N + 64) * R * 4 + R * D * 4 + (N + 64) * D * 4;
  void *q = input(M * D * 4), *qm = input(M), *qg = input(M * 4);
  void *x = input(B * N * D * n[6]), *xm = input(B * N), *xg = input(B * N * 4);
  Packing p = {q, qm, qg, M, D, s[0], s[1] - s[2],
               room(many), room(many), room(many), room(many), room(many), room(8), room(8)};
  pack(&p);
  float *rows = calloc(B * M, 4), *columns = calloc(B * N, 4);
  Match m = {0, M, R, p.count, p.place, p.scaled, p.live, p.panels, N, x, xm, xg, D, n[4],
             s[0], s[1], s[2], s[3], s[4], rows, columns};
  void *work[9];
  for (int i = 0; i < 9; i++) work[i] = room(many);
  match(&m, work, 0, B);
  fwrite(rows, 4, B * M, stdout); fwrite(columns, 4, B * N, stdout);
  return 0;
}
"""


@pytest.mark.parametrize("exact", [False, True], ids=["fast", "exact"])
@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.int8])
def test_arm64_agrees_with_float64_reference(tmp_path, exact, kind):
    pairs, m, n, channels, rounds, temperature = 2, 37, 29, 19, 10, 0.1
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=generator)

    query, gallery = F.normalize(draw(1, m, channels), dim=-1), F.normalize(draw(pairs, n, channels), dim=-1)
    gallery[:, :10] = F.normalize(query[:, :10] + 0.1 * gallery[:, :10], dim=-1)
    query_gain, gallery_gain = draw(1, m).tanh(), draw(pairs, n).tanh()
    query_mask, gallery_mask = torch.ones(1, m, dtype=torch.bool), torch.ones(pairs, n, dtype=torch.bool)
    gallery_mask[1, 20:] = False
    stored = (gallery * 127).round().to(kind) if kind == torch.int8 else gallery.to(kind)
    program, form, scales = _program(tmp_path, exact, str(kind).removeprefix("torch."), temperature)
    room = -(-m // form.panel) * form.panel
    blocks = [
        np.array([pairs, m, n, channels, rounds, room, stored.element_size()], np.int64),
        np.array([scales.steepness, scales.shift, scales.half, 1.0, np.exp(-1 / temperature)]),
        *(part.numpy() for part in (query, query_mask, query_gain, stored, gallery_mask, gallery_gain)),
    ]
    done = subprocess.run(
        [EMULATOR, str(program)], input=b"".join(b.tobytes() for b in blocks), capture_output=True, timeout=120
    )
    assert done.returncode == 0
    strengths = np.frombuffer(done.stdout, np.float32)

    similarity = torch.einsum("id,bjd->bij", query[0].double(), F.normalize(stored.double(), dim=-1))
    plan = reference.sinkhorn(
        similarity,
        query_gain.double(),
        gallery_gain.double(),
        1.0,
        temperature=temperature,
        rounds=rounds,
        query_mask=query_mask,
        gallery_mask=gallery_mask,
    )
    expected = np.concatenate([plan.row_max.flatten(), plan.column_max.flatten()])
    limit = 1e-5 if exact and kind == torch.float32 else 3e-4  # the others are normalised once more by this test
    assert np.abs(strengths - expected).max() <= limit


def _program(folder, exact, source, temperature):
    from llvmlite import binding

    from elvis.transport.cpu.form import choose
    from elvis.transport.cpu.kernel import matching_module, packing_module
    from elvis.transport.cpu.machine import Machine, optimised

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    machine = Machine("plain", 4, 12, None, "aarch64-unknown-linux-gnu", "generic")
    form, scales = choose(machine, temperature, exact=exact)
    objects = []
    for name, module in (("pack", packing_module(form, "float32")), ("match", matching_module(form, source))):
        target, parsed = optimised(module, machine)
        (folder / f"{name}.o").write_bytes(target.emit_object(parsed))
        objects.append(str(folder / f"{name}.o"))
    (folder / "driver.c").write_text(DRIVER)
    program = folder / "program"
    subprocess.run([COMPILER, "-static", "-O1", str(folder / "driver.c"), *objects, "-o", str(program)], check=True)
    return program, form, scales
