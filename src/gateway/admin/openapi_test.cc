#include "gateway/admin/openapi.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace hadal::admin {
namespace {

using nlohmann::json;

TEST(OpenApi, DescribesTheRoutesOfThisRouterAndNoOther) {
  http::Router router;
  router.add("GET", "/health", {});
  router.add("POST", "/v1/chat/completions", {});
  const json document = json::parse(openapi_document(router, "1.2", 500));
  EXPECT_EQ(document["paths"].size(), 2u);
  EXPECT_EQ(document["info"]["version"], "1.2");
  EXPECT_EQ(document["components"]["schemas"]["TokenId"]["maximum"], 499);
  EXPECT_EQ(document["paths"]["/v1/chat/completions"]["post"]["operationId"], "chat");
}

TEST(OpenApi, ARouteThatNobodyDescribedIsListedAsSuch) {
  http::Router router;
  router.add("DELETE", "/v1/things/{id}/parts/{part}", {});
  const json document = json::parse(openapi_document(router, "1", 2));
  const json& operation = document["paths"]["/v1/things/{id}/parts/{part}"]["delete"];
  EXPECT_TRUE(operation["x-undocumented"]);
  EXPECT_EQ(operation["parameters"].size(), 2u);
  EXPECT_EQ(operation["parameters"][1]["name"], "part");
}

}  // namespace
}  // namespace hadal::admin
