from derivable.core.names import FreshNames, identifier


def test_names_are_fresh_and_repeatable():
    for _ in range(2):
        names = FreshNames(["x", "y_1"])
        assert [names("x"), names("x"), names("y"), names("y"), names("x_1")] == ["x_1", "x_2", "y", "y_2", "x_1_1"]
    names.reserve("z")
    assert "z" in names
    assert names("z") == "z_1"


def test_identifiers():
    assert identifier("a b-c") == "a_b_c"
    assert identifier("3d") == "_3d"
    assert identifier("if") == "if_"
    assert identifier("") == "x"
    assert all(identifier(text).isidentifier() for text in ["", "é", "1", "class", "a.b"])
