"""Laws that operators and methods keep, as test classes to inherit: for plug-ins of one's own.

    class TestMyOperator(OperatorConformance):  # or BatchMeanConformance
        def operator(self) -> Operator:
            return MyOperator(...)

    class TestMyMethod(MethodConformance):
        def method(self) -> Method:
            return MY_METHOD

pytest collects the subclass and runs each law on what its factory method returns.
"""

from fedscope.testing.batch_means import BatchMeanConformance
from fedscope.testing.method_laws import MethodConformance
from fedscope.testing.operators import OperatorConformance

__all__ = ["BatchMeanConformance", "MethodConformance", "OperatorConformance"]
