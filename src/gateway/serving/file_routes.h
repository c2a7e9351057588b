#pragma once

#include "gateway/http/router.h"
#include "gateway/serving/api_reply.h"
#include "gateway/serving/file_sender.h"
#include "gateway/serving/request_maker.h"
#include "gateway/store/store.h"

namespace hadal::serving {

// /v1/files: upload (multipart/form-data), list, get, content, delete. Each tenant sees its own
// only. All references outlive the router.
void add_file_routes(http::Router& router, const TenantOf& tenant_of, store::Store& store,
                     RequestMaker& maker, FileSender& sender);

}  // namespace hadal::serving
