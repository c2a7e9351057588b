#pragma once

#include <cstdint>

// A ring of stages in shared memory between warps that bring them and warps that use them.
namespace hadal::cuda {

// S: kStages stages of kStageBytes, their barriers kBarriersAt bytes behind the first stage.
template <class S>
struct Ring {
  uint8_t* stages;
  uint64_t* full;
  uint64_t* empty;
  int at = 0;
  uint32_t phase = 0;

  __device__ explicit Ring(uint8_t* shared)
      : stages(shared),
        full(reinterpret_cast<uint64_t*>(shared + S::kBarriersAt)),
        empty(full + S::kStages) {}
  __device__ void next() {
    if (++at == S::kStages) {
      at = 0;
      phase ^= 1;
    }
  }
  __device__ uint8_t* stage() const { return stages + at * S::kStageBytes; }
};

}  // namespace hadal::cuda
