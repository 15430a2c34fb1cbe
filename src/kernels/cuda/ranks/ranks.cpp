#include "kernels/cuda/ranks/ranks.h"

#include <cuda_runtime.h>

#include <cstdlib>
#include <memory>
#include <string_view>

#include "kernels/cuda/ranks/nccl.h"
#include "kernels/cuda/ranks/peers.h"

namespace reckoner {
namespace {

struct End {
  RankLink nccl;
  std::shared_ptr<PeerGroup> peers;  // nullptr: NCCL does all
  int rank;
};

Result<std::shared_ptr<PeerGroup>> peers_unless_forbidden(const std::vector<int>& devices) {
  const char* const asked = std::getenv("RECKONER_RANK_SUMS");
  if (asked == nullptr || std::string_view(asked) != "nccl") return connect_peers(devices);
  return Error{"RECKONER_RANK_SUMS is nccl"};
}

}  // namespace

Result<RankLinks> connect_gpus(const std::vector<int>& devices) {
  const RankLinks nccl = TRY(connect_by_nccl(devices));
  const auto peers = peers_unless_forbidden(devices);
  RankLinks links{.links = {}, .library = nccl.library};
  links.library += peers.ok() ? " (small sums straight between GPUs)" : " (all sums: " + peers.error().what + ")";
  for (std::size_t rank = 0; rank < devices.size(); ++rank)
    links.links.push_back(new End{nccl.links[rank], peers.ok() ? peers.value() : nullptr, static_cast<int>(rank)});
  return links;
}

Status add_over_gpus(int device, RankLink link, Stream stream, std::byte* values, std::int64_t count) {
  const End& end = *static_cast<const End*>(link);
  if (end.peers == nullptr || count > kMostPeerValues) return all_reduce_by_nccl(device, end.nccl, stream, values, count);
  static_cast<void>(cudaSetDevice(device));  // what is wrong with it shows at the next synchronise()
  add_over_peers(*end.peers, end.rank, stream, reinterpret_cast<float*>(values), count);
  return {};
}

Status disconnect_gpu(int device, RankLink link) {
  const std::unique_ptr<End> end(static_cast<End*>(link));
  if (end->peers != nullptr) stop_waiting(*end->peers);
  return disconnect_nccl(device, end->nccl);  // waits for recorded steps, which may use the peers' memory
}

}  // namespace reckoner
