#include <memory>

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "compute/backends/cuda/boundary.h"
#include "compute/backends/cuda/cuda_device.h"
#include "compute/backends/cuda/cuda_ops.h"
#include "compute/backends/cuda/peaks.h"
#include "compute/backends/cuda/sampler.h"
#include "compute/backends/loader/module_entry.h"

// The module's entry: looks for a GPU that the module has code for.
namespace hadal::cuda {
namespace {

using loader::Absence;

constexpr int kMinMajor = 9;  // Hopper: its instructions are in the kernels

class CudaBackend final : public ops::Backend {
 public:
  CudaBackend(const Gpu& gpu, std::string description, std::unique_ptr<MixBranch> branch)
      : branch_(std::move(branch)),
        device_(gpu, std::move(description), branch_.get()),
        ops_(gpu, device_, branch_.get()) {}
  std::string_view name() const override { return "cuda"; }
  device::Device& device() override { return device_; }
  ops::Ops& ops() override { return ops_; }
  core::Result<std::unique_ptr<ops::Sampler>> make_sampler(
      const ops::SamplerShape& shape) override {
    return CudaSampler::make(shape, device_.gpu(), device_);
  }
  core::Result<ops::Peaks> measure_peaks() override {
    return cuda::measure_peaks(device_.gpu(), device_);
  }

 private:
  const std::unique_ptr<MixBranch> branch_;  // null without overlap
  CudaDevice device_;
  CudaOps ops_;
};

core::Error absent(Absence& out, Absence why, std::string message) {
  out = why;
  return {core::Code::kUnavailable, std::move(message), "backend"};
}

std::string driver_text() {
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  const auto text = [](int v) { return fmt::format("{}.{}", v / 1000, v % 1000 / 10); };
  if (driver == 0)
    return fmt::format("no NVIDIA driver is loaded; this build needs one for CUDA {} or newer",
                       text(runtime));
  return fmt::format(
      "the NVIDIA driver is for CUDA {}, this build needs {} or newer; install a "
      "newer driver",
      text(driver), text(runtime));
}

core::Result<std::unique_ptr<ops::Backend>> make(std::string_view option, Absence& absence) {
  // serial: no kernel starts before the one in front of it has ended, recordings have one branch.
  // fp8: products of many quantised rows in E4M3.
  const bool overlaps = option != "serial";
  if (!option.empty() && option != "serial" && option != "fp8") {
    return absent(
        absence, Absence::kFailed,
        fmt::format("it has no option {}; cuda, cuda:fp8 and cuda:serial are known", option));
  }
  int n = 0;
  cudaError_t error = cudaGetDeviceCount(&n);
  if (error == cudaErrorInsufficientDriver || error == cudaErrorStubLibrary ||
      error == cudaErrorSystemDriverMismatch)
    return absent(absence, Absence::kNoDriver, driver_text());
  if (error == cudaErrorNoDevice || (error == cudaSuccess && n == 0)) {
    return absent(absence, Absence::kNoDevice,
                  "the driver shows no GPU to this process; look at nvidia-smi and at "
                  "CUDA_VISIBLE_DEVICES");
  }
  cudaDeviceProp p{};
  if (error == cudaSuccess) error = cudaGetDeviceProperties(&p, 0);
  if (error != cudaSuccess) {
    return absent(absence, Absence::kFailed,
                  fmt::format("{}; look at nvidia-smi",
                              cuda_error("asking the driver for its GPUs", error).message));
  }
  if (p.major < kMinMajor) {
    return absent(absence, Absence::kOldDevice,
                  fmt::format("{} has compute capability {}.{}, the kernels need {}.0 (H100, H200) "
                              "or newer",
                              p.name, p.major, p.minor, kMinMajor));
  }
  const Gpu gpu = {.sm_count = p.multiProcessorCount,
                   .cc_major = p.major,
                   .cc_minor = p.minor,
                   .smem_optin = p.sharedMemPerBlockOptin,
                   .l2_bytes = static_cast<size_t>(p.l2CacheSize),
                   .overlap = overlaps,
                   .fp8_products = option == "fp8"};
  std::unique_ptr<MixBranch> branch;
  if (overlaps) {
    auto second = MixBranch::make(branch_scratch_bytes());
    if (!second) {
      return absent(absence, Absence::kFailed,
                    fmt::format("{} does not work: {}", p.name, second.error().message));
    }
    branch = std::move(second).value();
  }
  auto made = std::make_unique<CudaBackend>(
      gpu,
      fmt::format("{}, {} multiprocessors, {:.0f} GB{}{}", p.name, p.multiProcessorCount,
                  static_cast<double>(p.totalGlobalMem) / 1e9, option.empty() ? "" : ", ", option),
      std::move(branch));
  // Opens the context, and fails where the module has no code for this architecture.
  auto trial = made->device().allocate(256, device::Memory::kDevice);
  if (!trial) {
    return absent(absence, Absence::kFailed,
                  fmt::format("{} does not work: {}", p.name, trial.error().message));
  }
  return std::unique_ptr<ops::Backend>(std::move(made));
}

constexpr loader::ModuleTable kTable = {.stamp = loader::interface_stamp(), .make = make};

}  // namespace
}  // namespace hadal::cuda

extern "C" __attribute__((visibility("default"))) const hadal::loader::ModuleTable*
hadal_backend_module() {
  return &hadal::cuda::kTable;
}
