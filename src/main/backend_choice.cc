#include "main/backend_choice.h"

#include <array>
#include <filesystem>

#include <fmt/format.h>
#include <unistd.h>

#include "compute/backends/cpu/cpu_backend.h"
#include "compute/backends/loader/backend_module.h"

namespace hadal::main {
namespace {

using BackendPtr = std::unique_ptr<ops::Backend>;

core::Result<BackendPtr> host(const ModelFlags& flags) {
  return cpu::make_cpu_backend({.n_threads = flags.threads, .level = flags.cpu_level});
}

// The kernel module of NVIDIA's driver is loaded: a GPU is there, whatever this build can do.
bool driver_is_loaded() {
  std::error_code ignored;
  return std::filesystem::exists("/proc/driver/nvidia/version", ignored);
}

bool worth_a_line(loader::Absence absence) {
  switch (absence) {
    case loader::Absence::kNoModule:
    case loader::Absence::kNoDriver:
      return driver_is_loaded();
    case loader::Absence::kNoDevice:
      return false;
    case loader::Absence::kWrongBuild:
    case loader::Absence::kOldDevice:
    case loader::Absence::kFailed:
      return true;
  }
  return true;
}

}  // namespace

std::string program_dir() {
  std::array<char, 4096> path{};
  const ssize_t n = readlink("/proc/self/exe", path.data(), path.size() - 1);
  if (n <= 0) return {};
  return std::filesystem::path(std::string(path.data(), static_cast<size_t>(n)))
      .parent_path()
      .string();
}

core::Result<BackendPtr> make_backend(const ModelFlags& flags) {
  const std::string& name = flags.backend;
  const bool automatic = name.empty() || name == "auto";
  if (name == "cpu" || (automatic && !flags.cpu_level.empty())) return host(flags);
  if (!automatic && name != "cuda" && !name.starts_with("cuda:")) {
    return core::Error{core::Code::kInvalidRequest,
                       fmt::format("--backend is {}; it can be auto, cpu or cuda", name),
                       "backend"};
  }
  loader::ModuleOutcome cuda = loader::open_backend(program_dir(), automatic ? "cuda" : name);
  if (cuda.backend != nullptr) return std::move(cuda.backend);
  if (!automatic) {
    return core::Error{core::Code::kUnavailable,
                       fmt::format("--backend {}: {}", name, cuda.message), "backend"};
  }
  if (worth_a_line(cuda.absence))
    fmt::print(stderr, "hadal: on the CPU, not the GPU: {}\n", cuda.message);
  return host(flags);
}

}  // namespace hadal::main
