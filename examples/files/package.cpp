// A compiled package in C++: a round is one call, which learns the last round and chooses the next arm.
//
//     python -c "from torchonline import OFUL; from torchonline.export import compile_program, to_program
//     compile_program(to_program(OFUL(2)), 'oful.pt2')"
//     TORCH=$(python -c "import os, torch; print(os.path.dirname(torch.__file__))")
//     g++ -std=c++20 -O2 -I$TORCH/include -I$TORCH/include/torch/csrc/api/include package.cpp -o package \
//         -L$TORCH/lib -ltorch -ltorch_cpu -lc10 -Wl,-rpath,$TORCH/lib
//     ./package oful.pt2
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <cmath>
#include <iostream>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

int main(int count, char** words) {
    if (count != 2) {
        std::cerr << "usage: package FILE\n";
        return 2;
    }
    at::set_num_threads(1);
    c10::InferenceMode no_gradients;
    torch::inductor::AOTIModelPackageLoader policy(words[1]);
    auto arms = at::tensor({1.0, 0.0, 0.6, 0.8, 0.0, 1.0}, at::kDouble).reshape({1, 3, 2});  // one decision, three arms
    auto mask = at::ones({1, 3}, at::kBool);
    auto past = arms[0].clone();  // the arms of the last round, of which k was chosen
    auto k = at::zeros({}, at::kLong), reward = at::zeros({}, at::kDouble), learn = at::zeros({}, at::kBool);
    int learnt = 0, best = 0;
    for (int t = 0; t < 200; ++t) {
        auto found = policy.run({past, k, reward, learn, arms, mask});  // choices, and whether the last round was learnt
        k = found[0][0].clone();                                        // -1 if there is nothing to choose
        learnt += found[1].item<bool>();
        best += k.item<int64_t>() == 2;
        reward = past[k.item<int64_t>()][1] + 0.1 * std::sin(t);
        if (t % 10 == 9) reward = at::full({}, std::nan(""), at::kDouble);  // a reward that is missing
        learn = at::ones({}, at::kBool);
    }
    auto found = policy.run({past, k, reward, learn, arms, at::zeros_like(mask)});
    learnt += found[1].item<bool>();
    std::cout << "learnt " << learnt << " of 200, the best arm " << best << " times, without an arm "
              << found[0].item<int64_t>() << "\n";
}
