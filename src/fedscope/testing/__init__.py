"""Laws that operators, estimators and methods keep, as test classes to inherit: for plug-ins of one's own.

    class TestMyOperator(OperatorConformance):  # or BatchMeanConformance
        def operator(self) -> Operator:
            return MyOperator(...)

    class TestMyEstimator(EstimatorConformance):
        def estimate(self, op, **draws):
            return my_estimator(op, **draws)

        def truth(self, matrix: Tensor) -> float:
            return float(matrix.trace())

    class TestMyMethod(MethodConformance):
        def method(self) -> Method:
            return MY_METHOD

pytest collects the subclass and runs each law on what its factory method returns.
"""

from fedscope.testing.batch_means import BatchMeanConformance
from fedscope.testing.estimator_laws import EstimatorConformance
from fedscope.testing.method_laws import MethodConformance
from fedscope.testing.operators import OperatorConformance

__all__ = ["BatchMeanConformance", "EstimatorConformance", "MethodConformance", "OperatorConformance"]
