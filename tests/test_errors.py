from albert_tf.errors import nearest_names


def test_a_misspelt_name_gets_the_nearest_choice():
    assert nearest_names("hiden_size", ["hidden_size", "vocab_size"]) == "did you mean 'hidden_size'?"


def test_a_strange_name_gets_all_choices():
    assert nearest_names("zzz", ["b", "a"]) == "the choices are a, b"
