// A TorchScript file in C++: it chooses and learns.
//
//     python -c "from torchonline import OFUL; from torchonline.export import to_torchscript; to_torchscript(OFUL(2), 'oful.pt')"
//     TORCH=$(python -c "import os, torch; print(os.path.dirname(torch.__file__))")
//     g++ -std=c++20 -O2 -I$TORCH/include -I$TORCH/include/torch/csrc/api/include script.cpp -o script \
//         -L$TORCH/lib -ltorch -ltorch_cpu -lc10 -Wl,-rpath,$TORCH/lib
//     ./script oful.pt
#include <ATen/Parallel.h>
#include <cmath>
#include <iostream>
#include <torch/script.h>

int main(int count, char** words) {
    if (count != 2) {
        std::cerr << "usage: script FILE\n";
        return 2;
    }
    at::set_num_threads(1);
    c10::InferenceMode no_gradients;
    torch::jit::Module policy = torch::jit::load(words[1]);
    auto arms = torch::tensor({{1.0, 0.0}, {0.6, 0.8}, {0.0, 1.0}}, torch::kFloat64);
    int learnt = 0, best = 0;
    for (int t = 0; t < 200; ++t) {
        auto k = policy.get_method("select")({arms}).toTensor();  // -1 if there is nothing to choose
        double reward = arms[k.item<int64_t>()][1].item<double>() + 0.1 * std::sin(t);
        if (t % 10 == 9) reward = std::nan("");  // a reward that is missing
        auto flag = policy.get_method("step")({arms, k, torch::tensor(reward, torch::kFloat64)}).toTensor();
        learnt += flag.item<bool>();
        best += k.item<int64_t>() == 2;
    }
    auto none = policy.get_method("select")({arms, torch::zeros(3, torch::kBool)}).toTensor();
    std::cout << "learnt " << learnt << " of 200, the best arm " << best << " times, without an arm "
              << none.item<int64_t>() << "\n";
    policy.save(words[1] + std::string(".learnt"));  // goes on from here
}
