#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/core/result.h"
#include "main/loaded_model.h"

namespace hadal::main {

// A config.json cut to `n_layers` layers of its own: half of them from the bottom and half from the
// last KV source up, so that both kinds keep their share. Without Engram (its tables alone are
// larger than a host) and without draft and vision layers. Errors name what cannot be cut.
core::Result<std::string> shorten_config(std::string_view json, int32_t n_layers);

// Whether a host with `free_bytes` holds the weights of such a config twice, as made and as packed,
// which running on the CPU takes. kOverloaded says how much is missing.
core::Status check_host_holds(const weights::ModelConfig& config, uint64_t free_bytes);

// The model of such a config with random weights: made in host memory from the seed, a few GB, and
// packed from there. No file is written.
core::Result<LoadedModel> make_short_model(const ModelFlags& flags, int32_t n_layers, uint64_t seed,
                                           const DeviceUse& use);

}  // namespace hadal::main
