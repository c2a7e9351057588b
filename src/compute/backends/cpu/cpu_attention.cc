#include <algorithm>
#include <cstring>

#include "compute/backends/cpu/cpu_ops.h"
#include "compute/ops/step_batch.h"

namespace hadal::cpu {
namespace {

float widened(uint16_t x) {
  const uint32_t u = static_cast<uint32_t>(x) << 16;
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}

uint16_t narrowed(float x) {
  uint32_t u;
  std::memcpy(&u, &x, 4);
  if ((u & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
  return static_cast<uint16_t>((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

enum Turn { kForth, kBack };

// Rotates the last d_rope of n channels by adjacent pairs. Stays in this file, which is compiled
// without FMA: GCC 12 fuses this pattern into vfmaddsub even under -ffp-contract=off.
template <Turn kTurn>
void rotate(uint16_t* x, int64_t n, int32_t d_rope, const float* angles) {
  uint16_t* pair = x + n - d_rope;
  for (int32_t i = 0; i < d_rope / 2; ++i, pair += 2) {
    const float c = angles[2 * i];
    const float s = kTurn == kForth ? angles[2 * i + 1] : -angles[2 * i + 1];
    const float x0 = widened(pair[0]), x1 = widened(pair[1]);
    pair[0] = narrowed(x0 * c - x1 * s);
    pair[1] = narrowed(x0 * s + x1 * c);
  }
}

std::byte* slab_of(const ops::KvView& kv, const ops::KvLayout& layout, const uint32_t* table,
                   int64_t block) {
  return kv.slabs + static_cast<int64_t>(table[block]) * layout.slab_bytes;
}

}  // namespace

void CpuOps::latent_write(const ops::LatentArgs& args, ops::Stream&) {
  const int64_t d = args.kv.n_cols;
  pool_.run([&](const Lane& lane) {
    const Range rows = share(args.kv.n_rows, lane);
    auto* x = reinterpret_cast<uint16_t*>(lane.scratch);
    for (int64_t t = rows.begin; t < rows.end; ++t) {
      row_.rms(args.kv.row(t), args.norm, d, args.eps, x);
      rotate<kForth>(x, d, args.d_rope, args.rope + t * args.d_rope);
      row_.pack_window(x, static_cast<int32_t>(d), args.out.row(t));
    }
  });
}

void CpuOps::compress(const ops::CompressArgs& args, Scratch scratch, ops::Stream&) {
  const ops::StepRows& rows = *args.rows;
  const ops::KvSource& source = args.layout->sources[static_cast<size_t>(args.source)];
  const int32_t ratio = source.ratio;
  Carver carver(scratch);
  auto* ends = carver.take<int32_t>(args.n_rows);  // rows whose token ends a group
  auto* latent = carver.take<uint16_t>(static_cast<int64_t>(args.n_rows) * args.d_head);
  auto* key = carver.take<uint16_t>(static_cast<int64_t>(args.n_rows) * args.d_index);
  int64_t n = 0;
  for (int32_t t = 0; t < args.n_rows; ++t) {
    const int32_t p = rows.positions[t];
    if ((p + 1) % ratio == 0 && p >= rows.seqs[rows.seq_of[t]].write_from) ends[n++] = t;
  }
  if (n == 0) return;
  const auto& wk = static_cast<const CpuLinear&>(*args.wk);
  LinearCall call;
  call.weights = &wk.packed();
  call.x = latent;
  call.x_stride = args.d_head;
  call.y = key;
  call.y_stride = args.d_index;
  const RowGroup all[] = {{0, 0, static_cast<int32_t>(n)}};
  call.groups = all;
  pool_.run([&](const Lane& lane) {
    const Range part = share(n, lane);
    for (int64_t i = part.begin; i < part.end; ++i) {
      const int32_t t = ends[i], p = rows.positions[t];
      uint16_t* u = latent + i * args.d_head;
      if (ratio == 1) {
        row_.narrow(args.vg.row(t), args.d_head, u);
      } else {
        const ops::BatchSeq& seq = rows.seqs[rows.seq_of[t]];
        const auto* open = reinterpret_cast<const float*>(
            args.kv->slots + seq.slot * args.slot->slot_bytes + source.group_offset);
        const float* members[8];
        for (int32_t m = 0; m < ratio; ++m) {
          const int32_t q = p - ratio + 1 + m;
          members[m] = q < seq.first_position
                           ? open + static_cast<int64_t>(m) * 2 * args.d_head
                           : args.vg.row(rows.row_of[seq.first_index + q - seq.first_position]);
        }
        row_.pool_group(members, ratio, args.d_head, u);
      }
      row_.rms(u, args.norm, args.d_head, args.eps, u);
    }
    lane.barrier();
    cpu::linear(linear_, call, lane);
    lane.barrier();
    for (int64_t i = part.begin; i < part.end; ++i) {
      const int32_t t = ends[i];
      const float* angles = args.rope + static_cast<int64_t>(t) * args.d_rope;
      uint16_t* k = key + i * args.d_index;
      row_.rms(k, args.k_norm, args.d_index, args.eps, k);
      rotate<kForth>(k, args.d_index, args.d_rope, angles);
      uint16_t* c = latent + i * args.d_head;
      rotate<kForth>(c, args.d_head, args.d_rope, angles);
      const int64_t entry = rows.positions[t] / ratio;
      const uint32_t* table = rows.tables + rows.seqs[rows.seq_of[t]].table_offset;
      auto* slab = reinterpret_cast<uint8_t*>(
          slab_of(*args.kv, *args.layout, table, entry / source.n_entries));
      const int64_t at = entry % source.n_entries;
      row_.pack_entry(c, args.d_head, slab + source.entry_offset + at * source.entry_bytes);
      row_.pack_key(k, args.d_index, slab + source.key_offset + at * source.key_code_bytes,
                    slab + source.key_scale_offset + at * source.key_scale_bytes);
    }
  });
}

void CpuOps::query(const ops::QueryArgs& args, Scratch scratch, ops::Stream&) {
  const int64_t n = args.q_raw.n_rows, lora = args.q_raw.n_cols;
  if (n == 0) return;
  const auto& wq = static_cast<const CpuLinear&>(*args.wq);
  const auto* index_wq = static_cast<const CpuLinear*>(args.index_wq);
  Carver carver(scratch);
  auto* qr = carver.take<uint16_t>(n * lora);
  const RowGroup all[] = {{0, 0, static_cast<int32_t>(n)}};
  LinearCall call;
  call.weights = &wq.packed();
  call.x = qr;
  call.x_stride = lora;
  call.y = args.q.data;
  call.y_stride = args.q.stride;
  call.groups = all;
  LinearCall index_call = call;
  uint16_t* raw = nullptr;
  if (index_wq != nullptr) {
    raw = carver.take<uint16_t>(n * index_wq->n());
    index_call.weights = &index_wq->packed();
    index_call.y = raw;
    index_call.y_stride = index_wq->n();
  }
  const int64_t heads = wq.n() / args.d_head;
  const int64_t index_heads = index_wq != nullptr ? index_wq->n() / args.d_index : 0;
  const int64_t record = ops::key_record_bytes(args.d_index);
  pool_.run([&](const Lane& lane) {
    const Range rows = share(n, lane);
    for (int64_t t = rows.begin; t < rows.end; ++t) {
      row_.rms(args.q_raw.row(t), args.norm, lora, args.eps, qr + t * lora);
      row_.snap8(qr + t * lora, lora, qr + t * lora);
    }
    lane.barrier();
    cpu::linear(linear_, call, lane);
    if (index_wq != nullptr) cpu::linear(linear_, index_call, lane);
    lane.barrier();
    const Range items = share(n * heads, lane);
    for (int64_t i = items.begin; i < items.end; ++i) {
      const int64_t t = i / heads;
      rotate<kForth>(args.q.row(t) + i % heads * args.d_head, args.d_head, args.d_rope,
                     args.rope + t * args.d_rope);
    }
    const Range index_items = share(n * index_heads, lane);
    for (int64_t i = index_items.begin; i < index_items.end; ++i) {
      const int64_t t = i / index_heads, h = i % index_heads;
      uint16_t* x = raw + i * args.d_index;
      rotate<kForth>(x, args.d_index, args.d_rope, args.rope + t * args.d_rope);
      uint8_t* out = args.iq.row(t) + h * record;
      row_.pack_key(x, args.d_index, out, out + args.d_index / 2);
    }
  });
}

namespace {

// Lists the keys of a row, 64 places to a block: window places oldest first, then the listed
// entries, which begin at place `window` whatever the row's position, so that a row's blocks do not
// depend on the prompt's length.
struct KeyList {
  const ops::AttendArgs& args;
  AttendKey* keys;
  int32_t* ends;
  int32_t n = 0;
  int32_t place = 0;

  void close_to(int32_t to) {  // ends blocks up to the one that holds place `to`
    for (; place / 64 < to / 64; place = (place / 64 + 1) * 64) ends[place / 64] = n;
    place = to;
  }

  int32_t fill(int64_t t) {  // number of blocks
    const ops::StepRows& rows = *args.rows;
    const int32_t p = rows.positions[t];
    const ops::BatchSeq& seq = rows.seqs[rows.seq_of[t]];
    const int32_t floor = args.upper ? seq.upper_floor : seq.window_floor;
    const int32_t first = std::max(p - args.window + 1, 0);
    const auto* ring = reinterpret_cast<const uint8_t*>(
        args.kv->slots + seq.slot * args.slot->slot_bytes + args.slot->ring_offset +
        args.ring_layer * args.slot->ring_bytes());
    for (int32_t q = first; q <= p; ++q) {
      close_to(q - first);
      if (q < floor) continue;
      const uint8_t* record =
          q < seq.first_position
              ? ring + (q % args.slot->ring_tokens) * args.slot->window_bytes
              : args.latents.row(rows.row_of[seq.first_index + q - seq.first_position]);
      keys[n++] = {record, true};
    }
    close_to(args.window);
    if (args.source >= 0) {
      const ops::KvSource& source = args.layout->sources[static_cast<size_t>(args.source)];
      const uint32_t* table = rows.tables + seq.table_offset;
      const int32_t* list = args.list.row(t);
      for (int32_t i = 0; i < args.n_list[t]; ++i) {
        close_to(args.window + i);
        const auto* slab = reinterpret_cast<const uint8_t*>(
            slab_of(*args.kv, *args.layout, table, list[i] / source.n_entries));
        keys[n++] = {slab + source.entry_offset + list[i] % source.n_entries * source.entry_bytes,
                     false};
      }
    }
    ends[place / 64] = n;
    return place / 64 + 1;
  }
};

}  // namespace

void CpuOps::sparse_attend(const ops::AttendArgs& args, Scratch, ops::Stream&) {
  if (args.n_rows == 0) return;
  const int32_t d = args.d_head;
  const auto heads = static_cast<int32_t>(args.q.n_cols / d);
  const int64_t places = args.window + (args.source >= 0 ? args.list.n_cols : 0) + 1;
  // Heads of a row are cut so that every lane has work and a part fits its scratch.
  const int64_t per_head = 2 * padded64(d * 4) + 64 * 4 + 8;
  const int64_t fixed =
      padded64(64 * d * 4) + padded64(places * 16) + padded64((places / 64 + 2) * 4) + 4096;
  HADAL_CHECK(fixed + per_head <= pool_.scratch_bytes(), "lane scratch is too small to attend");
  int64_t step = std::min<int64_t>(heads, (pool_.scratch_bytes() - fixed) / per_head);
  if (args.n_rows < 2 * pool_.n_threads()) {
    const int64_t parts = (2 * pool_.n_threads() + args.n_rows - 1) / args.n_rows;
    step = std::min(step, std::max<int64_t>(4, (heads + parts - 1) / parts));
  }
  const int64_t n_parts = (heads + step - 1) / step;
  pool_.run([&](const Lane& lane) {
    Carver carver(lane.scratch, pool_.scratch_bytes());
    auto* keys = carver.take<AttendKey>(places);
    auto* ends = carver.take<int32_t>(places / 64 + 2);
    AttendScratch s{};
    s.keys = carver.take<float>(64 * static_cast<int64_t>(d));
    s.q = carver.take<float>(step * d);
    s.out = carver.take<float>(step * d);
    s.score = carver.take<float>(step * 64);
    s.max = carver.take<float>(step);
    s.den = carver.take<float>(step);
    const Range items = share(args.n_rows * n_parts, lane);
    for (int64_t i = items.begin; i < items.end; ++i) {
      const int64_t t = i / n_parts;
      const auto h = static_cast<int32_t>(i % n_parts * step);
      KeyList list{args, keys, ends};
      AttendJob job{};
      job.n_blocks = list.fill(t);
      job.q = args.q.row(t) + static_cast<int64_t>(h) * d;
      job.sink = args.sink + h;
      job.out = args.o.row(t) + static_cast<int64_t>(h) * d;
      job.keys = keys;
      job.block_ends = ends;
      job.n_heads = std::min(static_cast<int32_t>(step), heads - h);
      job.d = d;
      row_.attend(job, s);
      for (int32_t a = 0; a < job.n_heads; ++a)
        rotate<kBack>(job.out + a * d, d, args.d_rope, args.rope + t * args.d_rope);
    }
  });
}

void CpuOps::out_proj(const ops::OutArgs& args, Scratch scratch, ops::Stream&) {
  const int64_t n = args.o.n_rows;
  if (n == 0) return;
  const auto& wo_a = static_cast<const CpuLinear&>(*args.wo_a);
  const auto& wo_b = static_cast<const CpuLinear&>(*args.wo_b);
  const int64_t groups = wo_a.packed().n_groups(), wide = groups * wo_a.n();
  HADAL_CHECK(args.o.stride == groups * wo_a.k() && args.u.stride == wide, "out_proj shapes");
  Carver carver(scratch);
  auto* index = carver.take<int32_t>(n * groups);
  auto* row_groups = carver.take<RowGroup>(groups);
  const bool snap = wo_b.quantises();
  auto* snapped = snap ? carver.take<uint16_t>(n * wide) : args.u.data;
  for (int64_t g = 0; g < groups; ++g) {
    row_groups[g] = {static_cast<int32_t>(g), static_cast<int32_t>(g * n), static_cast<int32_t>(n)};
    for (int64_t t = 0; t < n; ++t) index[g * n + t] = static_cast<int32_t>(t * groups + g);
  }
  LinearCall a;
  a.weights = &wo_a.packed();
  a.x = args.o.data;
  a.x_stride = wo_a.k();
  a.x_index = index;
  a.y = args.u.data;
  a.y_stride = wo_a.n();
  a.y_index = index;
  a.groups = std::span(row_groups, static_cast<size_t>(groups));
  const RowGroup all[] = {{0, 0, static_cast<int32_t>(n)}};
  LinearCall b;
  b.weights = &wo_b.packed();
  b.x = snapped;
  b.x_stride = wide;
  b.y = args.y.data;
  b.y_stride = args.y.stride;
  b.groups = all;
  pool_.run([&](const Lane& lane) {
    cpu::linear(linear_, a, lane);
    lane.barrier();
    const Range parts = share(n * wide, lane, 32);
    if (snap && parts.end > parts.begin)
      row_.snap8(args.u.data + parts.begin, parts.end - parts.begin, snapped + parts.begin);
    lane.barrier();
    cpu::linear(linear_, b, lane);
  });
}

}  // namespace hadal::cpu
