from derivable.core.names import FreshNames


def test_names_are_fresh_and_repeatable():
    for _ in range(2):
        names = FreshNames(["x", "y_1"])
        assert [names("x"), names("x"), names("y"), names("y"), names("x_1")] == ["x_1", "x_2", "y", "y_2", "x_1_1"]
