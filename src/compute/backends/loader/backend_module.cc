#include "compute/backends/loader/backend_module.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

namespace hadal::loader {
namespace {

ModuleOutcome absent(Absence absence, std::string message) {
  ModuleOutcome out;
  out.absence = absence;
  out.message = std::move(message);
  return out;
}

std::string last_dl_error() {
  const char* text = dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps it per thread
  return text != nullptr ? text : "unknown error";
}

}  // namespace

ModuleOutcome open_backend(const std::string& folder, const std::string& named) {
  const size_t colon = named.find(':');
  const std::string name = named.substr(0, colon);
  const std::string option = colon == std::string::npos ? "" : named.substr(colon + 1);
  const std::string path = fmt::format("{}/libhadal_{}.so", folder, name);
  if (access(path.c_str(), R_OK) != 0) {
    return absent(Absence::kNoModule,
                  fmt::format("{} is not there: this build has no {} backend; build it with "
                              "tools/build.sh {} all on a machine with the toolkit",
                              path, name, name));
  }
  void* object = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (object == nullptr) {
    return absent(Absence::kWrongBuild, fmt::format("{} cannot be opened: {}; build program and "
                                                    "module together again",
                                                    path, last_dl_error()));
  }
  auto entry = reinterpret_cast<ModuleEntry>(dlsym(object, kModuleEntry));
  const ModuleTable* table = entry != nullptr ? entry() : nullptr;
  if (table == nullptr || table->stamp != interface_stamp()) {
    dlclose(object);
    return absent(Absence::kWrongBuild,
                  fmt::format("{} belongs to another build of this program; build program and "
                              "module together again",
                              path));
  }
  ModuleOutcome out;
  auto made = table->make(option, out.absence);
  if (made) {
    out.backend = std::move(made).value();
  } else {
    out.message = made.error().message;
    dlclose(object);
  }
  return out;
}

}  // namespace hadal::loader
