#include "gateway/http/api_keys.h"

#include <fstream>
#include <map>
#include <sstream>

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/sha.h>

namespace hadal::http {
namespace {

std::array<unsigned char, 32> sha256(std::string_view text) {
  std::array<unsigned char, 32> digest;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return digest;
}

}  // namespace

std::string_view presented_key(const Request& request) {
  const std::string_view authorization = request.header("authorization");
  constexpr std::string_view kBearer = "bearer ";
  if (authorization.size() > kBearer.size()) {
    bool is_bearer = true;
    for (size_t i = 0; i < kBearer.size(); ++i) {
      const char c = authorization[i];
      is_bearer =
          is_bearer && (c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c) == kBearer[i];
    }
    if (is_bearer) return authorization.substr(kBearer.size());
  }
  return request.header("x-api-key");
}

std::string basic_password(const Request& request) {
  constexpr std::string_view kBasic = "Basic ";
  std::string_view text = request.header("authorization");
  if (!text.starts_with(kBasic)) return {};
  text.remove_prefix(kBasic.size());
  if (text.size() > 1024 || text.size() % 4 != 0) return {};
  std::string out(text.size(), '\0');
  const int n = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                reinterpret_cast<const unsigned char*>(text.data()),
                                static_cast<int>(text.size()));
  if (n < 0) return {};
  out.resize(static_cast<size_t>(n));
  while (!out.empty() && out.back() == '\0') out.pop_back();  // padding
  const size_t colon = out.find(':');
  return colon == std::string::npos ? std::string() : out.substr(colon + 1);
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  const auto digest_a = sha256(a);
  const auto digest_b = sha256(b);
  return CRYPTO_memcmp(digest_a.data(), digest_b.data(), digest_a.size()) == 0;
}

core::Result<std::unique_ptr<ApiKeys>> ApiKeys::load(const std::string& path) {
  std::unique_ptr<ApiKeys> keys(new ApiKeys(path));
  HADAL_TRY_VOID(keys->reload());
  return keys;
}

core::Status ApiKeys::reload() {
  std::ifstream file(path_);
  if (!file) {
    return core::Error{
        core::Code::kIo,
        fmt::format("cannot read the key file {}; check --api-keys and the file's permissions",
                    path_),
        "api_keys"};
  }
  auto entries = std::make_shared<std::vector<Entry>>();
  std::map<std::array<unsigned char, 32>, size_t> lines;  // of the keys so far
  std::string line;
  for (size_t number = 1; std::getline(file, line); ++number) {
    std::istringstream words(line);
    std::string key, tenant, rest;
    words >> key >> tenant >> rest;
    if (key.empty() || key[0] == '#') continue;
    if (!rest.empty() && rest[0] != '#') {
      return core::Error{
          core::Code::kInvalidRequest,
          fmt::format("{}:{}: a line is KEY or KEY TENANT; remove what follows", path_, number),
          "api_keys"};
    }
    if (key.size() < 16) {
      return core::Error{
          core::Code::kInvalidRequest,
          fmt::format("{}:{}: a key of fewer than 16 characters can be guessed; use a longer one",
                      path_, number),
          "api_keys"};
    }
    const auto digest = sha256(key);
    if (const auto [at, fresh] = lines.emplace(digest, number); !fresh) {
      return core::Error{core::Code::kInvalidRequest,
                         fmt::format("{}:{}: the key of line {} once more; each key stands for one "
                                     "tenant",
                                     path_, number, at->second),
                         "api_keys"};
    }
    entries->push_back({digest, tenant.starts_with('#') ? std::string() : tenant});
  }
  if (entries->empty()) {
    return core::Error{core::Code::kInvalidRequest,
                       fmt::format("{} holds no key; add a line with one", path_), "api_keys"};
  }
  const std::lock_guard lock(mutex_);
  entries_ = std::move(entries);
  return {};
}

size_t ApiKeys::size() const {
  const std::lock_guard lock(mutex_);
  return entries_->size();
}

std::optional<std::string> ApiKeys::tenant_of(const Request& request) const {
  const std::string password = basic_password(request);
  const std::string_view key = password.empty() ? presented_key(request) : password;
  if (key.empty()) return std::nullopt;
  std::shared_ptr<const std::vector<Entry>> entries;
  {
    const std::lock_guard lock(mutex_);
    entries = entries_;
  }
  const auto digest = sha256(key);
  const Entry* found = nullptr;
  for (const Entry& entry : *entries) {
    if (CRYPTO_memcmp(entry.digest.data(), digest.data(), digest.size()) == 0) found = &entry;
  }
  if (found == nullptr) return std::nullopt;
  return found->tenant;
}

}  // namespace hadal::http
