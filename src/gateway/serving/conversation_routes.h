#pragma once

#include "gateway/http/router.h"
#include "gateway/serving/api_reply.h"
#include "gateway/serving/request_maker.h"
#include "gateway/store/store.h"

namespace hadal::serving {

// /v1/conversations: create, get, update, delete, and their items. Each tenant sees its own only.
// All references outlive the router.
void add_conversation_routes(http::Router& router, const TenantOf& tenant_of, store::Store& store,
                             RequestMaker& maker);

}  // namespace hadal::serving
