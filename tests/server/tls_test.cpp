// HTTPS with a certificate made for the test, by a client that checks it.
#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "test_server.h"

namespace reckoner {
namespace {

template <auto kFree>
struct Freed {
  template <class T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;

// Signed by itself, for 127.0.0.1, valid for an hour.
Certificate make_certificate(EVP_PKEY* key) {
  Certificate certificate(X509_new());
  X509_set_version(certificate.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_set_pubkey(certificate.get(), key);
  X509_NAME* const name = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("reckoner test"), -1, -1, 0);
  X509_set_issuer_name(certificate.get(), name);
  X509_EXTENSION* const address = X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "IP:127.0.0.1");
  X509_add_ext(certificate.get(), address, -1);
  X509_EXTENSION_free(address);
  X509_sign(certificate.get(), key, EVP_sha256());
  return certificate;
}

class Tls : public ServerTest {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("tls_test_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    const Key key(EVP_EC_gen("P-256"));
    certificate_ = make_certificate(key.get());
    std::FILE* file = std::fopen(key_file().c_str(), "w");
    PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
    std::fclose(file);
    file = std::fopen(certificate_file().c_str(), "w");
    PEM_write_X509(file, certificate_.get());
    std::fclose(file);
  }
  void TearDown() override {
    ServerTest::TearDown();
    std::filesystem::remove_all(folder_);
  }

  std::string key_file() const { return folder_ / "key.pem"; }
  std::string certificate_file() const { return folder_ / "certificate.pem"; }

  // The whole answer to a request that ends its connection; empty if the handshake fails.
  std::string ask(const std::string& request) const {
    const std::unique_ptr<SSL_CTX, Freed<SSL_CTX_free>> context(SSL_CTX_new(TLS_client_method()));
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), certificate_.get());
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(server->port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    std::string answer;
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
      const std::unique_ptr<SSL, Freed<SSL_free>> tls(SSL_new(context.get()));
      X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls.get()), "127.0.0.1");
      SSL_set_fd(tls.get(), socket);
      if (SSL_connect(tls.get()) == 1) {
        SSL_write(tls.get(), request.data(), static_cast<int>(request.size()));
        char buffer[4096];
        for (int count; (count = SSL_read(tls.get(), buffer, sizeof(buffer))) > 0;) answer.append(buffer, static_cast<std::size_t>(count));
      }
    }
    ::close(socket);
    return answer;
  }

 private:
  std::filesystem::path folder_;
  Certificate certificate_;
};

TEST_F(Tls, AnswersWholeAndInStreams) {
  start({.tls_certificate = certificate_file(), .tls_key = key_file()});
  EXPECT_TRUE(server->address().starts_with("https://")) << server->address();
  for (const char* stream : {"false", "true"}) {
    const std::string body = std::string(R"({"messages":[{"role":"user","content":"Define lantern."}],"temperature":0,"stream":)") +
                             stream + R"(,"chat_template_kwargs":{"enable_thinking":false}})";
    const std::string answer = ask(post_text("/v1/chat/completions", body, "Connection: close\r\n"));
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 200")) << answer;
    EXPECT_NE(answer.find(std::string_view(stream) == "true" ? "data: [DONE]" : "transparent"), std::string::npos) << answer;
  }
}

// Who speaks HTTP to the port, or nothing sensible, gets nothing; the next client is answered.
TEST_F(Tls, PlainRequestsAreClosed) {
  start({.tls_certificate = certificate_file(), .tls_key = key_file()});
  for (const char* bytes : {"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", "\x16\x03\x01\xFF\xFF garbage", ""}) {
    Client client(server->port());
    client.send(bytes);
    client.end_sending();
    EXPECT_NE(client.receive().status, 200);
  }
  EXPECT_TRUE(ask("GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").starts_with("HTTP/1.1 200"));
}

TEST_F(Tls, FilesThatAreNoneAreNamed) {
  const auto error = [&](const std::string& certificate, const std::string& key) -> std::string {
    try {
      start({.tls_certificate = certificate, .tls_key = key});
    } catch (const std::exception& failure) { return failure.what(); }
    return "";
  };
  std::ofstream(key_file() + ".bad") << "nothing";
  EXPECT_NE(error(certificate_file() + ".missing", key_file()).find("certificate.pem.missing"), std::string::npos);
  EXPECT_NE(error(certificate_file(), key_file() + ".bad").find("key.pem.bad"), std::string::npos);
}

}  // namespace
}  // namespace reckoner
