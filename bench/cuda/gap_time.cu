// gap_time: what a kernel costs in a recording (CUDA graph) beside its work: chains of kernels that
// do nothing, one after the other and with programmatic dependent launch, as decode steps have
// them.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime.h>

#include "compute/backends/cuda/async_copy.cuh"

namespace {

constexpr int kKernels = 400;
constexpr int kPlays = 9;

__global__ void nothing_kernel(bool overlap) {
  hadal::cuda::follow_previous(overlap);
}

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "gap_time: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

// Microseconds a kernel of `n_blocks` blocks, the median of some plays.
double play(bool overlap, unsigned n_blocks) {
  cudaStream_t stream;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "recording");
  for (int i = 0; i < kKernels; ++i) {
    hadal::cuda::launch_following(overlap, 1, nothing_kernel, dim3(n_blocks), dim3(256), 0, stream,
                                  overlap);
  }
  cudaGraph_t graph;
  check(cudaStreamEndCapture(stream, &graph), "recording");
  cudaGraphExec_t recorded;
  check(cudaGraphInstantiate(&recorded, graph, 0), "recording");
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  std::vector<float> times;
  for (int i = 0; i < kPlays + 2; ++i) {
    check(cudaEventRecord(begin, stream), "event");
    check(cudaGraphLaunch(recorded, stream), "play");
    check(cudaEventRecord(end, stream), "event");
    check(cudaStreamSynchronize(stream), "play");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "time");
    if (i >= 2) times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2] * 1e3 / kKernels;
}

}  // namespace

int main() {
  for (const unsigned n_blocks : {1u, 132u}) {
    std::printf("{\"bench\":\"gap\",\"blocks\":%u,\"serial_us\":%.3f,\"overlap_us\":%.3f}\n",
                n_blocks, play(false, n_blocks), play(true, n_blocks));
  }
  return 0;
}
