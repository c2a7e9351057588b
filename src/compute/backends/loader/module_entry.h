#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/core/result.h"
#include "compute/ops/backend.h"

// What a backend module (a shared object beside the program) shows to the program: one function
// that returns this table. Types of C++ cross the border: program and module are built together,
// with the same compiler and flags, and `stamp` says whether they were.
namespace hadal::loader {

// Changes with every change of Backend, Device, Ops or their argument structs that sizes do not
// show.
inline constexpr uint32_t kInterfaceVersion = 4;

// Folds the sizes of what crosses the border into the version: a module left over from another
// build is refused instead of misread.
constexpr uint64_t interface_stamp() {
  uint64_t stamp = kInterfaceVersion;
  for (const uint64_t size :
       {sizeof(ops::Ops::Limits),  sizeof(ops::StepRows),     sizeof(ops::RopeArgs),
        sizeof(ops::EmbedArgs),    sizeof(ops::BoundaryArgs), sizeof(ops::LinearArgs),
        sizeof(ops::LatentArgs),   sizeof(ops::CompressArgs), sizeof(ops::QueryArgs),
        sizeof(ops::IndexArgs),    sizeof(ops::AttendArgs),   sizeof(ops::OutArgs),
        sizeof(ops::RouteArgs),    sizeof(ops::MoeArgs),      sizeof(ops::GatherArgs),
        sizeof(ops::EngramArgs),   sizeof(ops::FinalArgs),    sizeof(ops::CommitArgs),
        sizeof(ops::KvLayout),     sizeof(ops::KvSource),     sizeof(ops::SlotLayout),
        sizeof(ops::WeightSource), sizeof(ops::SampleRow),    sizeof(ops::SampledToken),
        sizeof(ops::SamplerShape), sizeof(ops::Peaks),        sizeof(device::Buffer),
        sizeof(core::Error)})
    stamp = stamp * 1099511628211u + size;
  return stamp;
}

// Why a module has no backend on this machine.
enum class Absence : uint8_t {
  kNoModule,    // no shared object
  kWrongBuild,  // one of another build
  kNoDriver,    // the driver is missing or too old
  kNoDevice,    // no device is visible
  kOldDevice,   // a device that the module has no code for
  kFailed,      // the device is there and does not work
};

struct ModuleTable {
  uint64_t stamp = 0;
  // Devices are looked for at this call. `option`: a way of working of the module, "" for its usual
  // one. `absence` is set when the result is an error.
  core::Result<std::unique_ptr<ops::Backend>> (*make)(std::string_view option,
                                                      Absence& absence) = nullptr;
};

// The one exported name of a module.
inline constexpr const char* kModuleEntry = "hadal_backend_module";
using ModuleEntry = const ModuleTable* (*)();

}  // namespace hadal::loader
