"""What was saved, pickled or computed with a basis before its module became a package is still what it was."""

from __future__ import annotations

import base64
import pickle
import zlib
from collections.abc import Callable

import pytest
import torch

import sesn
from sesn import SteerableBasis

#: basis_b(ScaleGrid([1.5, 2.6]), 5, 2, max_order=1, mult=1.4), pickled by version 0.1.0 and compressed.
PICKLED = (
    "c-qxeOKa3n6wb^foz6^ObR#N?%PGRp4z&+_L`t>Lp!Ttug%XmPJCkT8ndIKowot5s<Ab|UycQQ#6hvH$3qi1Sp)RZi6|7kBv8a!oAQp>Vc#_"
    "Oa5%dRmA(=Vf_uZ3o&v%k({^|<P`HRLe!e&ZUu#OpR8YKuhifW)fAGpHWPO~YNq<q2AbBrc@G0rLm0(ETE`!nD%6(Oy|dZDObHX!~C@(=9i7"
    "rgbn%&<xY)f$JLQbZEUknIF=Ok~JdpF~U&s8CXL2Q!VM4MUEV*9|n}1GOsZO9AX_q7}^sEm%$tIZOgBr;q8_a-fcHK^?BDZ3<-C7Ad4{{X4;"
    "V#A@DOu6mA9-my+%mXtUt1Xq|a8qHdUTQmdEg8_6^%9~0N0qZwXRvB%PONL@1Iq#ZTqFb<`jn>OpDVF@+H4w|mYAM+zx&dLU>>$<Ejhsx735"
    "CmJX*gGsHU=^bKS}|4Sq)3c$$7^r%IX9`UUT~TLmW39z8E*wXAiFJIDU6%b80$#=xYS-Q#O~(w7@Z;bHswu<uT-7D8~+gAkzqpp%Y>t8JRg<"
    "G41gAOdLQmQ9`~i*p5uud@>^dh&9V0wjhNw5r}k?*mV-0@dnAT%z_=2c-MtzCNoh_9F%NxS^o&}e#?ci8V%669m+I;sJF8>-I?y_ZSQPPcc<"
    "+jakk{z5h-?<*!(c0J7#l#(}t8(EO3y!X1(9`>&FK%#9~J$Q!8RMUf6vqf8*w-xr&Ud#Nvbb_FRI#6B`~47SgkyYcV^^MqqkiIwNIoMnh$Gf"
    "hM472C7&{6GyxeL%DuEOT57wVFdPQJCj<fkNod8^mM0tc6Iz|L-RjusA|E6=1O}@*Pks7r(TLrw(q@j>)vbe?Fzemzx1XSSNYYshkIt$m*={"
    "gZZ94fe^Ili5?6U~{uLh?KeH&V;g5q~E-i^OPrpBI-M3tetNey-@KKQj-!`qQVoe!d&eU(?#<-;"
)
GRID = sesn.ScaleGrid([1.5, 2.6])
#: By basis: the sum of the numbers of its signature, and a sum over the outputs of two layers with weights of seed 0.
VALUES: dict[str, tuple[Callable[[], SteerableBasis], float, float]] = {
    "a": (lambda: sesn.basis_a(GRID, 7, 3), 1.4981708254360069, 7.603847577491911),
    "a wide": (lambda: sesn.basis_a(GRID, "wide", 3, max_order=2), 6.974185670418623, 2.4017609703961584),
    "b": (lambda: sesn.basis_b(GRID, 9, 4, max_order=2, mult=1.4), -1.0216793854219617, -1.6475853350461844),
    "for": (lambda: sesn.basis_for((1, 2), 2), 1.212256986642883, -2.066000105126185),
}


def test_an_old_pickle_is_the_same_basis() -> None:
    old = pickle.loads(zlib.decompress(base64.b85decode(PICKLED)))
    new = sesn.basis_b(GRID, 5, 2, max_order=1, mult=1.4)
    assert isinstance(old, SteerableBasis)
    assert (repr(old), old.pairs, old.signature.keys()) == (repr(new), new.pairs, new.signature.keys())
    # Another version of torch rounds an exponential otherwise in its last bit.
    for key, numbers in new.signature.items():
        assert old.signature[key] == pytest.approx(numbers, rel=4 * torch.finfo(torch.float64).eps, abs=0), key
    torch.testing.assert_close(old.functions, new.functions, rtol=4 * torch.finfo(torch.float64).eps, atol=0)
    assert old.reach == new.reach


@pytest.mark.parametrize("name", VALUES)
def test_fixed_seeds_give_the_numbers_that_they_gave(name: str) -> None:
    make, functions, outputs = VALUES[name]
    basis = make()
    assert sum(basis.signature["functions"]) == pytest.approx(functions, rel=1e-12)
    torch.manual_seed(0)
    lift, conv = sesn.ScaleLift(2, 3, basis).double(), sesn.ScaleConv(3, 2, basis, interscale=2).double()
    field = conv(torch.relu(lift(torch.randn(1, 2, 12, 11, dtype=torch.float64))))
    waves = torch.arange(field.numel(), dtype=torch.float64).cos().reshape(field.shape)
    assert float((field.detach() * waves).sum()) == pytest.approx(outputs, rel=1e-9)
