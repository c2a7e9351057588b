#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gateway/http/router.h"

namespace hadal::admin {

// The document of /openapi.json: src/gateway/admin/openapi.json, less the paths that this router
// does not have. A route that the file does not describe is listed with "x-undocumented": true, so
// that a client sees it and a test finds it (openapi_test.cc, tests/run/serve_test.py).
// `n_vocabulary`: token ids are below it.
std::string openapi_document(const http::Router& router, std::string_view version,
                             uint32_t n_vocabulary);

}  // namespace hadal::admin
