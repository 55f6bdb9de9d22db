"""Laws that every operator and every method keeps, as test classes to inherit: for plug-ins of one's own.

    class TestMyOperator(OperatorConformance):
        def operator(self) -> Operator:
            return MyOperator(...)

    class TestMyMethod(MethodConformance):
        def method(self) -> Method:
            return MY_METHOD

pytest collects the subclass and runs each law on what its factory method returns.
"""

from fedscope.testing.methods import MethodConformance
from fedscope.testing.operators import OperatorConformance

__all__ = ["MethodConformance", "OperatorConformance"]
