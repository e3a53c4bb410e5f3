import math
def parameters(horizon, degree=5):
    return (0.99998, 0.9995, 0.993, 0.91, 0.35),(0.004,0.011,0.04,0.15,0.28)
def column_norm(decay, weight, rounds):
    total=1.0
    for li,wi in zip(decay,weight):
        for lj,wj in zip(decay,weight):
            q=math.log(li)+math.log(lj)
            total+=wi*wj*math.expm1((rounds-1)*q)/math.expm1(q)
    return math.sqrt(total)
def errors(decay, weight, n):
    import numpy as np
    y=np.zeros(n);s=np.zeros(len(decay));z=np.zeros(n);z[0]=1;N=0;out=[]
    for t in range(n):
        yt=z[t]-np.dot(weight,s);s=np.array(decay)*s+yt;N+=yt;out.append(N)
    v=np.cumsum(np.square(out));return math.sqrt(v.mean()),math.sqrt(v[-1])
