#pragma once

#include "base/core/result.h"
#include "gateway/store/database.h"

namespace hadal::store {

// Makes the tables of a new file and brings older ones up to this version (PRAGMA user_version). A
// file of a newer version, or of another program (PRAGMA application_id), is refused untouched.
core::Status prepare_schema(Database& db);

}  // namespace hadal::store
