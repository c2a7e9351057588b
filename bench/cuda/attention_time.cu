#include "attention_rig.h"
#include "attention_time.h"

namespace hadal::test {
namespace {

// Median microseconds of a call, many calls to a graph replay.
double time_us(const std::function<void(cudaStream_t)>& call, int calls) {
  cudaStream_t stream;
  must(cudaStreamCreate(&stream), "stream");
  call(stream);
  must(cudaStreamSynchronize(stream), "warm up");
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < calls; ++i) call(stream);
  must(cudaStreamEndCapture(stream, &graph), "capture");
  must(cudaGraphInstantiate(&exec, graph, 0), "graph");
  cudaEvent_t begin, end;
  must(cudaEventCreate(&begin), "event");
  must(cudaEventCreate(&end), "event");
  std::vector<float> times;
  for (int i = 0; i < 7; ++i) {
    must(cudaEventRecord(begin, stream), "event");
    must(cudaGraphLaunch(exec, stream), "launch");
    must(cudaEventRecord(end, stream), "event");
    must(cudaEventSynchronize(end), "run");
    float ms = 0;
    must(cudaEventElapsedTime(&ms, begin, end), "event");
    if (i > 0) times.push_back(ms * 1000 / static_cast<float>(calls));
  }
  std::sort(times.begin(), times.end());
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  return times[times.size() / 2];
}

// Of all outputs, to compare builds with each other.
uint64_t bits_of(const std::vector<uint16_t>& values) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const uint16_t v : values) hash = (hash ^ v) * 0x100000001B3u;
  return hash;
}

// Random ascending lists instead of a search, for times of attention alone.
void draw_lists(World& w, Search& s) {
  for (int64_t t = 0; t < s.n; ++t) {
    const int32_t visible = (w.batch.positions[static_cast<size_t>(t)] + 1) / w.dims.ratio;
    const int32_t n = std::min(visible, w.dims.top_k);
    for (int32_t i = 0; i < n; ++i) {
      const int64_t low = static_cast<int64_t>(i) * visible / n;
      const int64_t high = static_cast<int64_t>(i + 1) * visible / n;
      s.list.host()[static_cast<size_t>(t * w.dims.top_k + i)] =
          static_cast<int32_t>(low + w.draw.bits() % static_cast<uint32_t>(high - low));
    }
    s.n_list.host()[static_cast<size_t>(t)] = n;
  }
  s.list.upload();
  s.n_list.upload();
}

}  // namespace

void time_attend(Machine& m, int32_t n_seqs, int32_t rows_each, int32_t position) {
  World w(kReleased, std::vector<SeqSpec>(static_cast<size_t>(n_seqs), {position, rows_each}), 4096,
          5);
  Search s(w);
  draw_lists(w, s);
  Attention a(w, s);
  for (const bool source : {true, false}) {
    const double us =
        time_us([&](cudaStream_t st) { a.run(m, true, source, st); }, a.n > 1000 ? 4 : 20);
    const double flops = static_cast<double>(a.n) * (source ? 640 : 128) * 64 * 512 * 4;
    std::printf("time  sparse_attend %s %d x %d rows at %d: %.1f us, %.0f TFLOP/s, bits %016llx\n",
                source ? "128 + 512" : "128      ", n_seqs, rows_each, position, us,
                flops / us * 1e-6, static_cast<unsigned long long>(bits_of(a.o.download())));
  }
}

void time_index(Machine& m, int32_t n_seqs, int32_t rows_each, int32_t position) {
  Dims dims = kReleased;
  for (const int32_t ratio : {2, 1}) {
    dims.ratio = ratio;
    World w(dims, std::vector<SeqSpec>(static_cast<size_t>(n_seqs), {position, rows_each}), 4096,
            5);
    Search s(w);
    const int calls = n_seqs * rows_each > 16 ? 2 : 20;
    const double full =
        time_us([&](cudaStream_t st) { s.run(m, true, ratio == 1, false, st); }, calls);
    std::printf("time  index_select ratio %d, %d x %d rows at %d: %.1f us", ratio, n_seqs,
                rows_each, position, full);
    if (ratio == 1)
      std::printf(", in pool %.1f us",
                  time_us([&](cudaStream_t st) { s.run(m, true, false, true, st); }, calls));
    std::printf("\n");
  }
}

void attention_times(Machine& m) {
  for (const int32_t n : {1, 8, 16, 64, 128, 256}) time_attend(m, n, 1, 20000);
  time_attend(m, 1, 1024, 8192);
  time_attend(m, 1, 8192, 8192);
}

void index_times(Machine& m) {
  for (const int32_t n : {1, 64}) time_index(m, n, 1, 131071);
  time_index(m, 1, 1, 8191);
  time_index(m, 1, 2048, 30000);
}

}  // namespace hadal::test
