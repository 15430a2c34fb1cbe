#include "diagnose/trials/database.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <utility>

namespace reckoner::trials {
namespace {

// Another process may be reading while this one writes.
constexpr int kBusyMs = 10'000;

struct Finalize {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Statement = std::unique_ptr<sqlite3_stmt, Finalize>;

int bind(sqlite3_stmt* statement, int index, const DatabaseValue& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return sqlite3_bind_int64(statement, index, *integer);
  if (const auto* number = std::get_if<double>(&value)) return sqlite3_bind_double(statement, index, *number);
  const std::string_view text = std::get<std::string_view>(value);
  return sqlite3_bind_text64(statement, index, text.empty() ? "" : text.data(), text.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
}

}  // namespace

std::int64_t DatabaseRow::integer(int column) const { return sqlite3_column_int64(statement_, column); }

double DatabaseRow::number(int column) const { return sqlite3_column_double(statement_, column); }

std::string DatabaseRow::text(int column) const {
  const unsigned char* bytes = sqlite3_column_text(statement_, column);
  if (bytes == nullptr) return {};
  return std::string(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(sqlite3_column_bytes(statement_, column)));
}

Result<std::unique_ptr<Database>> Database::open(const std::filesystem::path& path, int flags) {
  sqlite3* handle = nullptr;
  const int status = sqlite3_open_v2(path.c_str(), &handle, flags | SQLITE_OPEN_NOMUTEX, nullptr);
  std::unique_ptr<Database> database(new Database(path.string(), handle));
  if (status != SQLITE_OK) return database->error("cannot be opened");
  sqlite3_busy_timeout(handle, kBusyMs);
  sqlite3_extended_result_codes(handle, 1);
  return database;
}

Result<std::unique_ptr<Database>> Database::open_to_read(const std::filesystem::path& path) { return open(path, SQLITE_OPEN_READONLY); }

Result<std::unique_ptr<Database>> Database::open_to_write(const std::filesystem::path& path) {
  return open(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
}

Database::~Database() { sqlite3_close_v2(handle_); }

Error Database::error(std::string_view doing) const {
  return {fmt::format("{}: {}: {}", path_, doing, handle_ == nullptr ? "out of memory" : sqlite3_errmsg(handle_)),
          "check that the file is a ledger of `reckoner trials`, that you may read and write it, and that the disk has space"};
}

Status Database::run_script(const char* sql) {
  if (sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr) != SQLITE_OK) return error("a statement failed");
  return {};
}

Status Database::run(const char* sql, std::initializer_list<DatabaseValue> values) {
  return query(sql, values, [](const DatabaseRow&) {});
}

Status Database::query(const char* sql, std::initializer_list<DatabaseValue> values, const std::function<void(const DatabaseRow&)>& take) {
  sqlite3_stmt* prepared = nullptr;
  if (sqlite3_prepare_v2(handle_, sql, -1, &prepared, nullptr) != SQLITE_OK) return error("a statement failed");
  const Statement statement(prepared);
  int index = 0;
  for (const DatabaseValue& value : values) {
    if (bind(prepared, ++index, value) != SQLITE_OK) return error("a value cannot be stored");
  }
  for (;;) {
    const int status = sqlite3_step(prepared);
    if (status == SQLITE_DONE) return {};
    if (status != SQLITE_ROW) return error("a statement failed");
    take(DatabaseRow(prepared));
  }
}

std::int64_t Database::last_row_id() const { return sqlite3_last_insert_rowid(handle_); }

Status Database::transaction(const std::function<Status()>& body) {
  TRY(run_script("BEGIN IMMEDIATE"));
  Status done = body();
  if (done) done = run_script("COMMIT");
  if (!done) static_cast<void>(run_script("ROLLBACK"));
  return done;
}

}  // namespace reckoner::trials
