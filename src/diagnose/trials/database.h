// Database: SQLite as the ledger needs it: statements with bound values, rows, transactions; errors as values.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "base/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace reckoner::trials {

using DatabaseValue = std::variant<std::int64_t, double, std::string_view>;

// A row of an answer, valid until the next one.
class DatabaseRow {
 public:
  explicit DatabaseRow(sqlite3_stmt* statement) : statement_(statement) {}
  std::int64_t integer(int column) const;
  double number(int column) const;
  std::string text(int column) const;

 private:
  sqlite3_stmt* statement_;
};

class Database {
 public:
  static Result<std::unique_ptr<Database>> open_to_read(const std::filesystem::path& path);
  static Result<std::unique_ptr<Database>> open_to_write(const std::filesystem::path& path);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // Several statements without values.
  Status run_script(const char* sql);
  // One statement; its ?1, ?2, ... are `values`.
  Status run(const char* sql, std::initializer_list<DatabaseValue> values);
  Status query(const char* sql, std::initializer_list<DatabaseValue> values, const std::function<void(const DatabaseRow&)>& take);
  std::int64_t last_row_id() const;
  // All of `body` or nothing of it.
  Status transaction(const std::function<Status()>& body);
  Error error(std::string_view doing) const;

 private:
  Database(std::string path, sqlite3* handle) : path_(std::move(path)), handle_(handle) {}
  static Result<std::unique_ptr<Database>> open(const std::filesystem::path& path, int flags);

  std::string path_;
  sqlite3* handle_;
};

}  // namespace reckoner::trials
